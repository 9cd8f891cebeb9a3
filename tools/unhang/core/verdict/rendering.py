"""Ranks and suspects as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.core.text import counted, visible


def render_suspects(result: Mapping[str, Any]) -> list[str]:
    """Lines about the suspects of a smoke test or of a running job. The terminal wraps them, so
    that they can be copied as a whole."""
    lines = []
    for row in result["suspects"]:
        who = [visible(row["host"])] if row["host"] else ["the group"]
        who += [f"rank {row['rank']}"] if row["rank"] is not None else []
        who += [visible(row["gpu"])] if row["gpu"] else []
        lines += [
            "",
            f"suspect: {', '.join(who)}, in {visible(row['phase'])}",
            f"  why:  {visible(row['why'], 1500)}",
            f"  next: {visible(row['next'], 600)}",
        ]
    return lines


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
