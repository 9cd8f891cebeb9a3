"""Ranks as text for people."""

from __future__ import annotations

from collections.abc import Sequence

from unhang.core.text import counted


def fold_ranks(ranks: Sequence[int]) -> str:
    """[0, 1, 2, 5] -> 0-2,5."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def ranks_wait(count: int) -> str:
    """1 rank waits, 2 ranks wait."""
    return f"{counted(count, 'rank')} {'waits' if count == 1 else 'wait'}"
