"""Who is waited for, by what a log shows of groups. Values in, values out.

A log seldom holds the lines of all ranks. Where most of those that are waited for brought no line,
they are not missing from the job, but from the log: who waits for whom is then asked of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from unhang.core.verdict.waited_rows import Beside, waited_for_row
from unhang.core.verdict.waiting import LIKELY, POSSIBLE, SURE, WaitedFor, waited_for
from unhang.jobs.diagnose.log_groups import LogGroups
from unhang.jobs.diagnose.logs.last_words import RankLine
from unhang.jobs.diagnose.matching.scanning import Event

FEW_OF = 3  # ranks that wait, for each one without a line


def waits_of_log(shown: LogGroups, spoke: Iterable[int]) -> WaitedFor:
    """spoke: ranks with a line of their own. Never sure: an absent line proves nothing."""
    seen = {*shown.ranks, *spoke}
    answer = waited_for(shown.groups, shown.steps, seen)
    waiting = {rank for wait in (*answer.waits, *answer.follows) for rank in wait.waiting}
    silent = set(answer.roots) - seen
    if len(silent) * FEW_OF > len(waiting):
        among = [
            replace(group, members=tuple(rank for rank in group.members if rank in seen))
            for group in shown.groups
        ]
        others = waited_for(among, shown.steps, seen)
        if others.roots or others.ring:
            return replace(others, certainty=POSSIBLE, missing=answer.missing)
        return replace(answer, certainty=POSSIBLE)
    return replace(answer, certainty=LIKELY) if answer.certainty == SURE else answer


def row_of_waits(
    waited: WaitedFor,
    words: Mapping[int, RankLine],
    events: Iterable[Event],
    places: Mapping[int, str],
) -> dict[str, Any] | None:
    """The document's row. words: rank -> its last line. events: the lines of the steps.
    places: rank -> host, as far as another source has them."""
    lines = {(event.file, event.line): event for event in events}
    hosts = {
        rank: event.prefix.host
        for event in lines.values()
        if event.prefix.host and (rank := event.prefix.rank) is not None
    }
    last = {
        rank: {"file": said.file, "line": said.line, "text": said.text}
        for rank, said in words.items()
    }
    texts = {place: event.text for place, event in lines.items()}
    return waited_for_row(waited, Beside({**hosts, **places}, last, texts))
