"""Who is suspected, and what to do: of a smoke test and of a running job. Values only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from unhang.core.text import visible


@dataclass(frozen=True)
class Suspect:
    """host, rank, gpu: None if none can be accused. why: what was observed. next: what a person or
    the tool should do."""

    host: str | None
    rank: int | None
    gpu: str | None
    phase: str
    why: str
    next: str
    blind: bool = False  # the node could not be examined, which proves nothing about the machine
    may_be_slow: bool = False  # a deadline passed, and nothing else was observed
    cause: str | None = None  # its id, where the evidence shows one

    def as_dict(self) -> dict[str, Any]:
        """In the form of the result document."""
        return dict([*asdict(self).items()][:7])  # what follows is for those who judge


def render_suspects(suspects: Iterable[Suspect]) -> list[str]:
    """Lines about the suspects of a smoke test or of a running job. The terminal wraps them, so
    that they can be copied as a whole."""
    lines = []
    for row in suspects:
        who = [visible(row.host)] if row.host else ["the group"]
        who += [f"rank {row.rank}"] if row.rank is not None else []
        who += [visible(row.gpu)] if row.gpu else []
        lines += [
            "",
            f"suspect: {', '.join(who)}, in {visible(row.phase)}",
            f"  why:  {visible(row.why, 1500)}",
            f"  next: {visible(row.next, 600)}",
        ]
    return lines
