"""What was found about a job, whoever looked: the first screen and the short form are made of it.
Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import to_builtins

from unhang.core.verdict.screen import VerdictScreen, with_waited_for
from unhang.core.verdict.short_evidence import render_short_evidence
from unhang.core.verdict.waited_rows import WaitedRow, groups_of

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class JobAnswer:
    """Rows are those of the schema `evidence-short-1`.

    by            diagnose, inspect or watch
    word          of the outcome, or the state
    screen        the first screen, without who is waited for
    waited_for    as a document keeps it
    primary       failures that may have come first; consequences: those that follow from another
    causes        most probable first
    lines         those that show the verdict where no cause is known
    full          path of the whole evidence on the machine that looked
    """

    by: str
    word: str
    screen: VerdictScreen
    waited_for: WaitedRow | None = None
    primary: Rows = ()
    consequences: Rows = ()
    causes: Rows = ()
    facts: Rows = ()
    read: Rows = ()
    not_read: Rows = ()
    full: str | None = None
    lines: Rows = ()


def screen_of(answer: JobAnswer) -> VerdictScreen:
    """What render_screen() prints."""
    return with_waited_for(answer.screen, answer.waited_for)


def render_evidence(answer: JobAnswer) -> str:
    """`unhang/evidence-short/1`, one JSON object of at most 16 KiB."""
    screen = screen_of(answer)
    return render_short_evidence({
        "by": answer.by,
        "verdict": {
            "word": answer.word,
            "headline": screen.headline,
            "certainty": screen.certainty.partition(",")[0] or None,
        },
        "waited_for": to_builtins(answer.waited_for),
        "groups": groups_of(answer.waited_for),
        "primary": answer.primary,
        "consequences": answer.consequences,
        "lines": answer.lines,
        "causes": answer.causes,
        "next": {
            "host": screen.next_host or None,
            "command": screen.next_command,
            "tells": screen.next_tells,
        } if screen.next_command else None,
        "facts": answer.facts,
        "read": answer.read,
        "not_read": answer.not_read,
        "full": answer.full,
    })  # fmt: skip


def failure_row(
    text: str, rank: int | None, host: str | None, file: str | None = None, line: int | None = None
) -> dict[str, Any]:
    """A failure; file and line are None for what is in no file."""
    return {"text": text, "file": file, "line": line, "rank": rank, "host": host}


def fact_row(
    name: str, value: object, file: str | None = None, line: int | None = None
) -> dict[str, Any]:
    return {"name": name, "value": str(value), "file": file, "line": line}
