"""Order of Debian package versions, as deb-version(7) defines it."""

from __future__ import annotations

import re

_PIECES = re.compile(r"(\D*)(\d*)")


def deb_version_key(version):
    """A sort key: keys compare as `dpkg --compare-versions` compares the versions. version: [epoch:]upstream[-revision]."""
    epoch, colon, rest = version.strip().partition(":")
    if not colon or not epoch.isdigit():
        epoch, rest = "0", version.strip()
    upstream, dash, revision = rest.rpartition("-")
    if not dash:
        upstream, revision = rest, ""
    return int(epoch), _part_key(upstream), _part_key(revision)


def _part_key(text):
    """Words and numbers in turn. Each word ends in 0, which stands between "~" (sorts before the end) and anything else (sorts after it)."""
    pieces = []  # type: list
    for word, number in _PIECES.findall(text):
        if word or number:
            pieces.append(tuple(_rank(character) for character in word) + (0,))
            pieces.append(int(number or 0))
    return tuple(pieces) + ((0,),)


def _rank(character):
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256
