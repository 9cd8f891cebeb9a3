"""dpkg's status file, read by hand: 3,000 stanzas in a few milliseconds, of which only those that
matter are parsed.

Format: deb822 stanzas (dpkg-status is written by dpkg itself: `Package:` first, one field a line),
dpkg(1) for the words of `Status:`.
"""

from __future__ import annotations

import re

from ..named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STATUS_LIMIT_BYTES = 64 << 20
_STATUS = re.compile(rb"^Status: (\S+) (\S+) (\S+)", re.M)
_VERSION = re.compile(rb"^Version: (\S+)", re.M)
_ARCHITECTURE = re.compile(rb"^Architecture: (\S+)", re.M)
_UNFINISHED = frozenset(
    ["half-configured", "half-installed", "unpacked", "triggers-awaited", "triggers-pending"]
)
USUAL = b"\nStatus: install ok installed\n"
_GONE = frozenset(["not-installed", "config-files"])


class Package(NamedTuple):
    """One installed package; held: selected for hold; state: dpkg's word (installed,
    half-configured …)."""

    name: str
    version: str
    architecture: str
    held: bool
    state: str

    def row(self) -> dict[str, Any]:
        """As the schema's package_list has it."""
        return {
            "name": self.name,
            "version": self.version,
            "architecture": self.architecture,
            "held": self.held,
            "state": self.state,
        }


class Database(NamedTuple):
    """packages: the requested ones, sorted by name; holds, unfinished: names of all packages that
    are on hold, or not completely configured."""

    packages: tuple[Package, ...] = ()
    holds: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()

    def version(self, name: str) -> str | None:
        """Version of an installed package, or None."""
        return next((package.version for package in self.packages if package.name == name), None)

    def named(self, prefixes: tuple[str, ...]) -> list[Package]:
        """Packages whose name begins with one of `prefixes` (a tuple)."""
        return [package for package in self.packages if package.name.startswith(prefixes)]


def parse_status(content: bytes, wanted: tuple[str, ...]) -> Database:
    """Database of a status file. content: bytes; wanted: a tuple of prefixes; only packages whose
    names begin with one are parsed."""
    prefixes = tuple(prefix.encode("ascii") for prefix in wanted)
    packages, holds, unfinished = [], set(), set()
    first_lines = tuple(b"Package: " + prefix for prefix in prefixes)
    for stanza in content.split(b"\n\n"):
        # Three comparisons handle the common case: most packages are of no interest and completely
        # installed.
        if (
            stanza.startswith(b"Package: ")
            and not stanza.startswith(first_lines)
            and USUAL in stanza
        ):
            continue
        name = _name_of(stanza)
        if not name:
            continue
        matters = name.startswith(prefixes)
        status = _STATUS.search(stanza)
        if not status:
            continue
        text = name.decode("utf-8", "replace")
        state = status.group(3).decode("utf-8", "replace")
        held = status.group(1) == b"hold"
        if held and state not in _GONE:
            holds.add(text)
        if state in _UNFINISHED or status.group(2) == b"reinstreq":
            unfinished.add(text)
        if matters and state not in _GONE:
            packages.append(
                Package(
                    name=text,
                    version=_field(_VERSION, stanza),
                    architecture=_field(_ARCHITECTURE, stanza),
                    held=held,
                    state=state,
                )
            )
    packages.sort(key=lambda package: (package.name, package.architecture))
    return Database(
        packages=tuple(packages), holds=tuple(sorted(holds)), unfinished=tuple(sorted(unfinished))
    )


def _name_of(stanza: bytes) -> bytes:
    """The package's name; dpkg writes it first, other writers may not."""
    stanza = stanza.lstrip(b"\n") if stanza[:1] == b"\n" else stanza
    if stanza.startswith(b"Package: "):
        return stanza[9 : stanza.find(b"\n") if b"\n" in stanza else None].strip()
    place = stanza.find(b"\nPackage: ")
    return stanza[place + 10 :].split(b"\n", 1)[0].strip() if place >= 0 else b""


def _field(pattern: re.Pattern[bytes], stanza: bytes) -> str:
    found = pattern.search(stanza)
    return found.group(1).decode("utf-8", "replace") if found else ""
