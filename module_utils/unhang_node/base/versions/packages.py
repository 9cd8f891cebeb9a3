"""The orders of Debian and RPM package versions, as their own documents define them:
deb-version(7), Debian policy 5.6.12; rpm's rpmvercmp.

The keys sort any text, so that a list of versions from a package manager never raises. compare_deb
and compare_rpm refuse a text that is no version.
"""

from __future__ import annotations

import re

# Patterns are compiled (and cached by re) at first use, so that importing this module costs nothing
# at start.
DEB = r"(?:[0-9]{1,9}:)?[0-9][A-Za-z0-9.+~:-]*?(?:-[A-Za-z0-9.+~]+)?"
RPM = r"(?:[0-9]{1,9}:)?[A-Za-z0-9._+~^%{}]+(?:-[A-Za-z0-9._+~^%{}]+)?"
DEB_PIECES = r"([^0-9]*)([0-9]*)"
RPM_PIECES = r"[0-9]+|[A-Za-z]+|[~^]"
RPM_END = (1, 0, "")


def compare_deb(left: str, right: str) -> int:
    """-1, 0 or 1, as `dpkg --compare-versions` compares. Raises ValueError for a text that is no
    Debian version."""
    _demand(DEB, left, "a deb")
    _demand(DEB, right, "a deb")
    one, other = deb_version_key(left), deb_version_key(right)
    return (one > other) - (one < other)


def compare_rpm(left: str, right: str) -> int:
    """-1, 0 or 1 for two texts [epoch:]version[-release]. Raises ValueError for a text that is no
    RPM version."""
    _demand(RPM, left, "an rpm")
    _demand(RPM, right, "an rpm")
    one, other = rpm_version_key(left), rpm_version_key(right)
    if not one[2] or not other[2]:  # rpm compares no releases when one side has none
        one, other = (*one[:2], ()), (*other[:2], ())
    return (one > other) - (one < other)


def _demand(pattern: str, text: str, kind: str) -> None:
    if not re.fullmatch(pattern, text):
        raise ValueError(f"{text[:60]!r} is not {kind} version")


def deb_version_key(version: str) -> tuple[tuple[int, str], tuple[object, ...], tuple[object, ...]]:
    """A sort key: keys compare as `dpkg --compare-versions` compares the versions. version:
    [epoch:]upstream[-revision]."""
    epoch, rest = _epoch(version)
    upstream, dash, revision = rest.rpartition("-")
    if not dash:
        upstream, revision = rest, ""
    return epoch, _deb_part(upstream), _deb_part(revision)


def _deb_part(text: str) -> tuple[object, ...]:
    """Texts and numbers in turn. Each text ends in 0, which sorts after "~" (which comes before the
    end of a text) and before anything else."""
    pieces: list[object] = []
    for letters, number in re.findall(DEB_PIECES, text):
        if letters or number or not text:  # no revision equals revision 0
            pieces.append((*map(_deb_weight, letters), 0))
            pieces.append(_number(number))
    return (*pieces, (0,))


def _deb_weight(character: str) -> int:
    """~ sorts before the end of the text, letters before everything else."""
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256


def rpm_version_key(
    version: str,
) -> tuple[tuple[int, str], tuple[tuple[int, int, str], ...], tuple[tuple[int, int, str], ...]]:
    """A sort key for versions with a release, [epoch:]version-release; one without a release sorts
    before all that have one."""
    epoch, rest = _epoch(version)
    upstream, _dash, release = rest.partition("-")
    return epoch, _rpm_part(upstream), _rpm_part(release) if release else ()


def _rpm_part(text: str) -> tuple[tuple[int, int, str], ...]:
    return (*map(_rpm_rank, re.findall(RPM_PIECES, text)), RPM_END)


def _rpm_rank(piece: str) -> tuple[int, int, str]:
    """~ sorts before the end, the end before ^, ^ before letters, letters before numbers."""
    if piece == "~":
        return (0, 0, "")
    if piece == "^":
        return (2, 0, "")
    if piece[0].isdigit():
        return (4, *_number(piece))
    return (3, 0, piece)


def _epoch(version: str) -> tuple[tuple[int, str], str]:
    """(sort key of the epoch, the rest)."""
    text = version.strip()
    found = re.match(r"([0-9]+):", text)
    return (_number(found.group(1)), text[found.end() :]) if found else (_number(""), text)


def _number(digits: str) -> tuple[int, str]:
    """A key that sorts digits by their value; int() would refuse more than 4,300 digits."""
    significant = digits.lstrip("0")
    return len(significant), significant
