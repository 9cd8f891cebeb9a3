"""Ranks and their collectives in words: `ranks 0-3, 7`, `ALLREDUCE #3 of 1 element`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unhang.core.text import counted
from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.waiting import MESSAGE, WaitedFor

MOST_OF_A_RING, MOST_PARTS = 4, 20
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


def ring_in_words(waited: WaitedFor) -> str:
    """`ranks 0-1 wait for each other: rank 0 waits in all_reduce #4 of a for rank 1, ...`; they
    called operations of two groups in unlike order, or name peers that do not fit."""
    ones = [
        f"{named_ranks(wait.waiting)} in {collective_in_words(wait.operation, wait.seq, None)} of"
        f" {wait.group.name}" + (f" for {named_ranks(wait.awaited)}" if wait.awaited else "")
        for wait in waited.crossed[:MOST_OF_A_RING]
    ]
    why = (
        "sends and receives do not fit together"
        if all(wait.operation == MESSAGE for wait in waited.crossed)
        else "they called the groups in unlike order"
    )
    odd = (
        f"{named_ranks(sorted(waited.roots))} unlike the others; " if waited.left_the_order else ""
    )
    ring = named_ranks(sorted(waited.ring))
    return f"{odd}{ring} wait for each other ({'; '.join(ones)}): {why}"
