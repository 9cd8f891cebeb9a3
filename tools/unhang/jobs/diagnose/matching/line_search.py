"""Searches many lines at once, in C: only the lines that contain one of the texts are processed one
by one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate


def lines_holding(texts: Iterable[bytes], lines: Sequence[bytes]) -> Iterator[list[int]]:
    """For each text the indices of the lines that contain it, in ascending order. A text contains
    no line end."""
    whole = b"\n".join(lines)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    for text in texts:
        held: list[int] = []
        at = whole.find(text)
        while at >= 0:
            held.append(bisect_right(starts, at) - 1)
            at = whole.find(text, starts[held[-1] + 1])
        yield held
