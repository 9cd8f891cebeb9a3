"""Lock files of dnf, yum and zypper: [(line number, package pattern, pin)]."""

from __future__ import annotations

import re

_NEVRA = re.compile(
    r"^(?:(?P<epoch_first>\d+):)?(?P<name>\S+?)-(?:(?P<epoch>\d+):)?(?P<version>[^-\s]+)-(?P<release>[^-\s]+?)(?:\.(?P<arch>[A-Za-z0-9_*]+))?$"
)


def parse_versionlock(text: str) -> list[tuple[int, str, str]]:
    """versionlock.list: one name-epoch:version-release.arch a line, "!" before a version that must
    not be installed."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        barred = entry.startswith("!")
        found = _NEVRA.match(entry.lstrip("!"))
        if found:
            pin = (
                f"{'not version' if barred else 'version'}"
                f" {found.group('version')}-{found.group('release')}"
            )
            rows.append((number, found.group("name"), pin))
        else:
            rows.append((number, entry.lstrip("!"), "not any version" if barred else "any version"))
    return rows


def parse_versionlock_toml(text: str) -> list[tuple[int, str, str]]:
    """dnf5's versionlock.toml: [[packages]] with a name and conditions; only the format that dnf
    itself writes is understood."""
    conditions: list[str] = []
    rows, name, line = [], None, 0
    for number, raw in enumerate(text.splitlines() + ["[[packages]]"], 1):
        entry = raw.split("#")[0].strip() if not raw.strip().startswith("#") else ""
        if entry == "[[packages]]":
            if name:
                rows.append((line, name, " and ".join(conditions) or "any version"))
            name, line, conditions = None, number, []
        found = re.match(r'^(name|key|comparator|value)\s*=\s*"([^"]*)"', entry)
        if found and found.group(1) == "name":
            name, line = found.group(2), number
        elif found and found.group(1) == "key":
            conditions.append(found.group(2))
        elif found and conditions:
            conditions[-1] += " " + found.group(2)
    return rows


def parse_zypp_locks(text: str) -> list[tuple[int, str, str]]:
    """zypper's locks: stanzas of `solvable_name: nvidia*`, some with a version."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        word, colon, value = line.partition(":")
        if colon and word.strip() == "solvable_name":
            rows.append((number, value.strip(), "any version"))
        elif colon and word.strip() == "version" and rows:
            rows[-1] = (rows[-1][0], rows[-1][1], "version " + value.strip())
    return rows


def parse_exclude_lines(text: str) -> list[tuple[int, str, str]]:
    """exclude= and excludepkgs= of dnf.conf's [main]."""
    rows: list[tuple[int, str, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.partition("=")
        if equals and name.strip() in ("exclude", "excludepkgs"):
            rows.extend(
                (number, package, "excluded")
                for package in re.split(r"[\s,]+", value.strip())
                if package
            )
    return rows
