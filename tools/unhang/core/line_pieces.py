"""Joins the pieces in which programs on nodes send long lines through srun, which mixes long lines
of its tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MOST_HELD = 64 << 20  # bytes of pieces of lines that have no end yet
PIECE = re.compile(rb"~([^ ]{1,300}) (\d{1,6})/(\d{1,6}) ")


def joined(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Complete lines from the pieces that the payload sends, because srun mixes long lines of its
    tasks. Other lines are not changed."""
    return (line for _key, line in joined_by_key(lines))


def joined_by_key(lines: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """(key of its pieces, complete line); the key of a line that is no piece is empty."""
    waiting: dict[bytes, dict[int, bytes]] = {}
    held = 0  # bytes of them
    for line in lines:
        found = PIECE.match(line)
        if not found:
            yield b"", line
            continue
        key, place, count = found[1], int(found[2]), int(found[3])
        pieces = waiting.setdefault(key, {})
        pieces[place] = line[found.end() :]
        held += len(line)
        if held > MOST_HELD:
            waiting, held = {}, 0  # of lines that never end
            continue
        if len(pieces) >= count:
            held = max(held - sum(map(len, pieces.values())), 0)
            yield key, b"".join(piece for _, piece in sorted(waiting.pop(key).items()))
