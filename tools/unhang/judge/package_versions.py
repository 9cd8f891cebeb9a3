"""The orders of Debian and RPM package versions, as their own documents define them."""

from __future__ import annotations

import re

_DEB = re.compile(r"(?:([0-9]{1,9}):)?([0-9][A-Za-z0-9.+~:-]*?)(?:-([A-Za-z0-9.+~]+))?")
_RPM = re.compile(r"(?:([0-9]{1,9}):)?([A-Za-z0-9._+~^%{}]+)(?:-([A-Za-z0-9._+~^%{}]+))?")


def compare_deb(left: str, right: str) -> int:
    """-1, 0 or 1 as `dpkg --compare-versions` has it (Debian policy, 5.6.12). Raises ValueError on what is no Debian version."""
    one, other = _deb_parts(left), _deb_parts(right)
    if one[0] != other[0]:
        return 1 if one[0] > other[0] else -1
    return _deb_text(one[1], other[1]) or _deb_text(one[2], other[2])


def _deb_parts(text: str) -> tuple[int, str, str]:
    found = _DEB.fullmatch(text)
    if not found:
        raise ValueError(f"{text[:60]!r} is not a deb version")
    return int(found.group(1) or 0), found.group(2), found.group(3) or ""


def _deb_weight(character: str) -> int:
    """~ sorts before the end of the text, letters before everything else."""
    if character == "~":
        return -1
    if not character or character.isdigit():
        return 0
    return ord(character) if character.isalpha() else ord(character) + 256


def _deb_text(left: str, right: str) -> int:
    one = other = 0
    while one < len(left) or other < len(right):
        while (one < len(left) and not left[one].isdigit()) or (other < len(right) and not right[other].isdigit()):
            difference = _deb_weight(left[one : one + 1]) - _deb_weight(right[other : other + 1])
            if difference:
                return 1 if difference > 0 else -1
            one, other = one + 1, other + 1
        number, one = _digits(left, one)
        against, other = _digits(right, other)
        if number != against:
            return 1 if number > against else -1
    return 0


def _digits(text: str, start: int) -> tuple[int, int]:
    """The number that starts here (0 when there is none) and the place after it."""
    end = start
    while end < len(text) and text[end].isdigit():
        end += 1
    return int(text[start:end] or 0), end


def compare_rpm(left: str, right: str) -> int:
    """-1, 0 or 1 of two [epoch:]version[-release] as rpm has it (rpm's rpmvercmp). Raises ValueError on what is no RPM version."""
    one, other = _rpm_parts(left), _rpm_parts(right)
    if one[0] != other[0]:
        return 1 if one[0] > other[0] else -1
    sign = _rpm_text(one[1], other[1])
    if sign or not one[2] or not other[2]:  # rpm leaves a release out of the comparison when one side has none
        return sign
    return _rpm_text(one[2], other[2])


def _rpm_parts(text: str) -> tuple[int, str, str]:
    found = _RPM.fullmatch(text)
    if not found:
        raise ValueError(f"{text[:60]!r} is not an rpm version")
    return int(found.group(1) or 0), found.group(2), found.group(3) or ""


_RPM_PIECE = re.compile(r"[0-9]+|[A-Za-z]+|[~^]")


def _rpm_text(left: str, right: str) -> int:
    one, other = _RPM_PIECE.findall(left), _RPM_PIECE.findall(right)
    for place in range(max(len(one), len(other))):
        piece = one[place] if place < len(one) else ""
        against = other[place] if place < len(other) else ""
        if piece == against:
            continue
        return 1 if _rpm_rank(piece) > _rpm_rank(against) else -1
    return 0


def _rpm_rank(piece: str) -> tuple[int, int, str]:
    """~ sorts before the end, the end before ^, ^ before letters, letters before numbers."""
    if piece == "~":
        return (0, 0, "")
    if not piece:
        return (1, 0, "")
    if piece == "^":
        return (2, 0, "")
    if piece.isdigit():
        return (4, int(piece), "")
    return (3, 0, piece)
