"""Reads every package in dpkg's database, and apt's own records of it."""

from __future__ import annotations

import contextlib
import re
from typing import Dict, Set

from ....base.parse.dpkg import parse_status
from ....base.root import Root
from ....base.untrusted_files import names_or_none
from ....facts.sections.package_database import UPDATES, read_status_bytes
from ...atomic_files import place_of, read_state
from ...config.unit_links import units_in
from ..values import Installed, Row

INFO = "/var/lib/dpkg/info"
_SOURCE = re.compile(r"^Source: (\S+)", re.M)
_CONFIG_FILES = re.compile(r"^Status: \S+ \S+ config-files$", re.M)
_PACKAGE = re.compile(r"^Package: (\S+)", re.M)
_AUTO = re.compile(r"^Auto-Installed: 1$", re.M)
_ARCHITECTURE = re.compile(r"^Architecture: (\S+)", re.M)


def read_installed(rootfs: str) -> Installed:
    """Raises OSError, ValueError."""
    root = Root([rootfs])
    try:
        content = read_status_bytes(root)
    except FileNotFoundError:
        raise ValueError(
            "dpkg's database /var/lib/dpkg/status is missing; is this a node of Debian or Ubuntu?"
        ) from None
    database = parse_status(content, ("",))
    native = native_architecture(root)
    packages = {
        apt_name(package.name, package.architecture, native): package
        for package in database.packages
    }
    return Installed(
        packages=packages,
        unfinished=list(database.unfinished),
        interrupted=any(name.isdigit() for name in names_or_none(root, UPDATES) or []),
        config_files=removed_with_config_files(content),
        ours={name.split(":")[0] for name in read_state(rootfs, "package_hold").get("holds", ())},
        architecture=native,
        sources={name: known for name, known in sources_of(content).items() if name in packages},
    )


def units_of(rootfs: str, row: Row) -> Set[str]:
    """Names of the systemd units that an installed package ships. row: of packages.json."""
    name = row["name"].split(":")[0]
    for stem in (name, f"{name}:{row['architecture'] or native_architecture(Root([rootfs]))}"):
        with contextlib.suppress(FileNotFoundError), open(
            place_of(rootfs, f"{INFO}/{stem}.list"), encoding="utf-8", errors="surrogateescape"
        ) as source:
            return units_in(source.read().splitlines())
    return set()


def native_architecture(root: Root) -> str:
    """The node's native architecture: the one of the package dpkg."""
    for name in ("/var/lib/dpkg/arch", "/var/lib/dpkg/arch-native"):
        try:
            lines = root.text(name).split()
        except OSError:
            continue
        if lines:
            return str(lines[0])
    found = re.search(
        rb"^Package: dpkg\n(?:.+\n)*?Architecture: (\S+)$", read_status_bytes(root), re.M
    )
    return found.group(1).decode("ascii", "replace") if found else ""


def apt_name(name: str, architecture: str, native: str) -> str:
    """A package's name in apt's notation: with the architecture if it is a foreign one."""
    return name if architecture in (native, "all", "") or not native else f"{name}:{architecture}"


def sources_of(content: bytes) -> Dict[str, str]:
    """{name: source package} of every stanza. content: dpkg's status; a package without the field
    has a source of the same name."""
    found = {}
    for stanza in content.decode("utf-8", "replace").split("\n\n"):
        name, source = _PACKAGE.search(stanza), _SOURCE.search(stanza)
        if name:
            found[name.group(1)] = source.group(1) if source else name.group(1)
    return found


def removed_with_config_files(content: bytes) -> Set[str]:
    """Names of removed packages whose configuration files remain. content: dpkg's status."""
    found: Set[str] = set()
    for stanza in content.decode("utf-8", "replace").split("\n\n"):
        if "config-files" in stanza and _CONFIG_FILES.search(stanza):
            found.update(_PACKAGE.findall(stanza)[:1])
    return found


def read_automatic(rootfs: str, native: str) -> Set[str]:
    """Names, in apt's notation, of packages that apt installed because others needed them."""
    try:
        with open(
            place_of(rootfs, "/var/lib/apt/extended_states"), encoding="utf-8", errors="replace"
        ) as source:
            text = source.read()
    except FileNotFoundError:
        return set()
    found = set()
    for stanza in text.split("\n\n"):
        name, architecture = _PACKAGE.search(stanza), _ARCHITECTURE.search(stanza)
        if name and _AUTO.search(stanza):
            found.add(
                apt_name(name.group(1), architecture.group(1) if architecture else "", native)
            )
    return found
