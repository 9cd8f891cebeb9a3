"""apt's configuration and preferences (apt.conf(5), apt_preferences(5)), and the package lists that
it keeps.

A subset of the grammar, as far as the settings named here need it. Nothing is executed, nothing is
fetched.
"""

from __future__ import annotations

import fnmatch
import re

from ...base.versions.packages import deb_version_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mmap
    from collections.abc import Collection
    from typing import Any

    AptSettings = dict[str, list[str]]

_VERSION = re.compile(rb"^Version: (\S+)", re.M)
STANZA_LIMIT_BYTES = 65536
_TOKENS = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|\#(?!clear\b|include\b)[^\n]*|"((?:[^"\\\n]|\\.)*)"|([{};])|([^\s{};"]+)',
    re.S,
)


def parse_apt_conf(text: str, settings: AptSettings | None = None) -> AptSettings:
    """{name in lower case: [values]} of one apt.conf file added to `settings` of the files before
    it.

    A plain name replaces its value, a list (Name:: "x"; or Name { "x"; };) grows, #clear empties.
    Parts that do not follow the grammar are skipped.
    """
    settings = {} if settings is None else settings
    scopes: list[str] = []
    tokens: list[tuple[str, str]] = []
    for string, mark, word in (found.groups() for found in _TOKENS.finditer(text)):
        if string is not None:
            tokens.append(('"', string))
        elif word:
            tokens.append(("", word))
        elif mark == "{":
            scopes.append(_plain(tokens))
            tokens = []
        elif mark == ";":
            _assign(settings, "::".join(scope for scope in scopes if scope), tokens)
            tokens = []
        elif mark == "}":
            tokens = []
            if scopes:
                scopes.pop()
    return settings


def _plain(tokens: list[tuple[str, str]]) -> str:
    return tokens[0][1] if tokens else ""


def _assign(settings: AptSettings, scope: str, tokens: list[tuple[str, str]]) -> None:
    if not tokens:
        return
    if tokens[0] == ("", "#clear"):
        for _quote, name in tokens[1:]:
            start = (scope + "::" if scope else "") + name
            for known in [
                key
                for key in settings
                if key == start.lower() or key.startswith(start.lower() + "::")
            ]:
                settings[known] = []
        return
    if tokens[0][1] == "#include" or len(tokens) > 2:
        return
    if len(tokens) == 1:
        if tokens[0][0] == '"':  # an item without a name, inside the list's braces
            settings.setdefault(scope.lower(), []).append(tokens[0][1])
        return
    name = (scope + "::" if scope else "") + tokens[0][1]
    if name.endswith("::"):
        settings.setdefault(name[:-2].lower(), []).append(tokens[1][1])
    else:
        settings[name.lower()] = [tokens[1][1]]


def setting_values(settings: AptSettings, name: str) -> list[str]:
    """All values of a list setting, those of its named items (Name::x "y";) included."""
    name = name.lower()
    values = list(settings.get(name, []))
    for key in settings:
        if key.startswith(name + "::"):
            values.extend(settings[key])
    return values


def setting_word(settings: AptSettings, name: str, default: str = "") -> str:
    """The one value of a setting."""
    values = settings.get(name.lower()) or []
    return values[-1] if values else default


def is_conf_name(name: str, endings: tuple[str, ...] = ("", ".conf")) -> bool:
    """True for a file name that apt reads in a *.d folder: no dot-file, no backup, no ending or one
    of `endings`."""
    if not re.match(r"^[A-Za-z0-9_\-.:]+$", name) or name.startswith("."):
        return False
    stem, dot, ending = name.rpartition(".")
    return (dot + ending if dot and stem else "") in endings


def parse_preferences(text: str) -> list[dict[str, Any]]:
    """[{package, pin, priority, line}] of one preferences file: a row for each package word, with
    the line of its `Package:`."""
    fields: dict[str, tuple[str, int]] = {}
    rows = []
    for number, line in enumerate(text.splitlines() + [""], 1):
        if line.startswith("#"):
            continue
        if not line.strip():
            rows.extend(_pins(fields))
            fields = {}
            continue
        name, colon, value = line.partition(":")
        if line[0] in " \t" and fields:
            last = list(fields)[-1]
            fields[last] = (fields[last][0] + " " + line.strip(), fields[last][1])
        elif colon:
            fields[name.strip().lower()] = (value.strip(), number)
    return rows


def _pins(fields: dict[str, tuple[str, int]]) -> list[dict[str, Any]]:
    if "package" not in fields or "pin" not in fields:
        return []
    try:
        priority: int | None = int(fields.get("pin-priority", ("", 0))[0])
    except ValueError:
        priority = None
    tokens, line = fields["package"]
    return [
        {"package": word, "pin": fields["pin"][0], "priority": priority, "line": line}
        for word in tokens.split()
    ]


def pin_priority(pins: list[dict[str, Any]], package: str, version: str, default: int) -> int:
    """Priority of one version of a package under the version pins: the first pin that names the
    package itself wins over globs (apt_preferences(5))."""
    for exact in (True, False):
        for pin in pins:
            tokens = pin["pin"].split(None, 1)
            if (
                pin["priority"] is None
                or len(tokens) != 2
                or tokens[0] != "version"
                or (pin["package"] == package) != exact
            ):
                continue
            if (exact or _names(pin["package"], package)) and fnmatch.fnmatchcase(
                version, tokens[1].strip()
            ):
                return int(pin["priority"])
    return default


def _names(pattern: str, package: str) -> bool:
    if len(pattern) > 1 and pattern[0] == pattern[-1] == "/":
        try:
            return re.search(pattern[1:-1], package) is not None
        except re.error:
            return False
    return fnmatch.fnmatchcase(package, pattern)


def release_priority(release_head: str) -> int:
    """Default priority of the packages that a Release file lists: 1 with NotAutomatic, 100 with
    ButAutomaticUpgrades too, else 500."""
    if not re.search(r"^NotAutomatic:\s*yes", release_head, re.M | re.I):
        return 500
    return 100 if re.search(r"^ButAutomaticUpgrades:\s*yes", release_head, re.M | re.I) else 1


def candidate_of(installed: str, offers: list[tuple[str, int]]) -> str | None:
    """The version that apt would upgrade to, or None when it would keep the installed one.

    offers: [(version, priority)]. The highest priority wins, then the newest; a downgrade needs
    more than 1000; a version with a negative priority is never taken.
    """
    here = deb_version_key(installed)
    best_key = (
        max([priority for version, priority in offers if version == installed] + [100]),
        here,
    )
    best = None
    for version, priority in offers:
        key = deb_version_key(version)
        if priority < 0 or (key < here and priority <= 1000):
            continue
        if (priority, key) > best_key:
            best_key, best = (priority, key), version
    return best


def offered_versions(content: bytes | mmap.mmap, names: Collection[str]) -> dict[str, list[str]]:
    """{name: [version]} for those of `names` that the list offers: one pass over the bytes; only
    the stanzas of the wanted packages are parsed.

    content: bytes, or a memory map, of an uncompressed Packages file. 50 MB take about 20 ms.
    """
    if not names:
        return {}
    names_pattern = b"|".join(re.escape(name.encode("utf-8")) for name in sorted(names))
    # A pattern with a literal beginning is searched at memory speed. The first stanza has no line
    # before it, so it is handled apart.
    matches = [re.compile(rb"Package: (" + names_pattern + rb")\n").match(content)]
    matches.extend(re.compile(rb"\nPackage: (" + names_pattern + rb")\n").finditer(content))
    offers: dict[str, list[str]] = {}
    for found in matches:
        if not found:
            continue
        end = content.find(b"\n\n", found.end())
        stanza = content[
            found.end() : min(end if end >= 0 else len(content), found.end() + STANZA_LIMIT_BYTES)
        ]
        version = _VERSION.search(stanza)
        if version:
            offers.setdefault(found.group(1).decode("utf-8"), []).append(
                version.group(1).decode("utf-8", "replace")
            )
    return offers
