"""Ranks and their collectives in words: `ranks 0-3, 7`, `ALLREDUCE #3 of 1 element`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unhang.core.text import counted
from unhang.core.verdict.rendering import fold_ranks

MOST_PARTS = 20
# why ranks wait for each other
IN_A_RING = "they called the groups in unlike order, or name peers that do not fit"
UNNAMED = "?"  # the operation of a watchdog's line that does not name it


def named_ranks(ranks: Sequence[int]) -> str:
    """`rank 2`, `ranks 0-3, 7`."""
    parts = fold_ranks(ranks).split(",")
    cut = " …" if len(parts) > MOST_PARTS else ""
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(parts[:MOST_PARTS])}{cut}"


def each_rank(ranks: Iterable[object]) -> tuple[str, ...]:
    """(`rank 2`, `rank 7`)."""
    return tuple(f"rank {rank}" for rank in ranks)


def collective_in_words(op: str, seq: int | None, numel: int | None) -> str:
    """`ALLREDUCE #3, 1 element`; `a collective` if the line does not name it."""
    number = "" if seq is None else f" #{seq}"
    size = "" if not numel else f", {counted(numel, 'element')}"
    return f"{'a collective' if op == UNNAMED else op}{number}{size}"


def limit_in_words(timeout_ms: int) -> str:
    """`, limit 1800 s`; "" if the line does not name it."""
    return f", limit {timeout_ms / 1000:g} s" if timeout_ms else ""
