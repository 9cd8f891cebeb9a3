"""Reads files with a bound on their size. Memory follows what is there: a buffer of the bound's
size cannot always be had."""

from __future__ import annotations

from typing import BinaryIO

PIECE_BYTES = 1 << 20


def read_at_most(source: BinaryIO, most_bytes: int, *, expected_bytes: int = PIECE_BYTES) -> bytes:
    """What comes from the source until its end, at most most_bytes. expected_bytes: what the first
    read asks for. Raises OSError."""
    pieces: list[bytes] = []
    left = most_bytes
    while left > 0 and (
        piece := source.read(min(PIECE_BYTES if pieces else max(1, expected_bytes), left))
    ):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)  # of one piece: that piece, not a copy
