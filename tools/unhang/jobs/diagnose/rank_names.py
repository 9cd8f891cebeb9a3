"""Ranks and their collectives in words: `ranks 0-3, 7`, `ALLREDUCE #3 of 1 element`."""

from __future__ import annotations

from collections.abc import Sequence

from unhang.core.text import counted

UNNAMED = "?"  # the operation of a watchdog's line that does not name it


def named_ranks(ranks: Sequence[int]) -> str:
    """`rank 2`, `ranks 0-3, 7`."""
    return f"rank{'' if len(ranks) == 1 else 's'} {ranges(ranks)}"


def ranges(numbers: Sequence[int]) -> str:
    """0-3, 7 from [0, 1, 2, 3, 7]."""
    parts: list[str] = []
    start = last = None
    for number in [*numbers, None]:
        if last is not None and number is not None and number == last + 1:
            last = number
            continue
        if last is not None:
            parts.append(str(start) if start == last else f"{start}-{last}")
        start = last = number
    return ", ".join(parts[:20]) + (" …" if len(parts) > 20 else "")


def collective_in_words(op: str, seq: int | None, numel: int | None) -> str:
    """`ALLREDUCE #3, 1 element`; `a collective` if the line does not name it."""
    number = "" if seq is None else f" #{seq}"
    size = "" if not numel else f", {counted(numel, 'element')}"
    return f"{'a collective' if op == UNNAMED else op}{number}{size}"


def limit_in_words(timeout_ms: int) -> str:
    """`, limit 1800 s`; "" if the line does not name it."""
    return f", limit {timeout_ms / 1000:g} s" if timeout_ms else ""
