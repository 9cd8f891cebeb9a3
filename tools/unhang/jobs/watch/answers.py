"""What a verdict means for the watcher: whether the job may be ended for it. Values in, values
out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unhang.core.verdict.ends import FROZEN, STOPPED
from unhang.core.verdict.job import HUNG
from unhang.jobs.inspect.evidence import host_of
from unhang.jobs.inspect.inspection import Inspection
from unhang.jobs.watch.detector import Event
from unhang_node.base.parse.values import as_maps

SLOW_IO = "slow_rank_or_io"
# torch's own watchdog ends a job after ten minutes: by then what flickers is reported all the same
LONGEST_STALL_S = 600.0


def with_seen(documents: Sequence[dict[str, Any]], event: Event) -> list[dict[str, Any]]:
    """The evidence of a look, with what only the watcher saw: which ranks woke up again and again
    before it, and which have ended, of whom the look finds nothing."""
    found = []
    for document in documents:
        rows = [
            {**row, "wakes": True} if row.get("rank") in event.woken else row
            for row in as_maps(document.get("ranks"))
        ]
        known = {row.get("rank") for row in rows}
        job = {name: row.get(name) for row in rows[:1] for name in ("job", "world_size")}
        rows += [
            {**job, "rank": rank, "pid": pid, "has_ended": True}
            for rank, (node, pid) in event.gone.items()
            if job and rank not in known and node in ("", host_of(document))
        ]
        found.append({**document, "ranks": rows})
    return found


def place_of_a_stall(event: Event, inspection: Inspection) -> tuple[Any, ...]:
    """Where those are who are said to hang and wait for data, a file or a server, as ranks of a
    healthy job do for a minute too: with another sample or file, or after progress, it is another
    place. () where one of them waits for something else, and where it took too long."""
    named = inspection.suspects
    if inspection.state != HUNG or not named or any(one.cause != SLOW_IO for one in named):
        return ()
    if event.t - event.since >= LONGEST_STALL_S:
        return ()
    of = {(one.host, one.rank) for one in named}
    rows = [row for row in inspection.ranks if (row.host, row.rank) in of]
    return (event.since, *((row.host, row.rank, row.where, row.worker) for row in rows))


def named_in(inspection: Inspection) -> set[tuple[Any, Any, Any]]:
    """(host, rank, phase) of each suspect: two looks agree if they name the same."""
    return {(one.host, one.rank, one.phase) for one in inspection.suspects}


def halted_words(inspection: Inspection) -> str:
    """That somebody halted a rank, a pause, a debugger or Slurm's suspend: that is his deed, and no
    reason to end the job. "" where nobody did."""
    for one in inspection.suspects:
        if one.phase in (FROZEN, STOPPED):
            return f"a process of it was {one.phase} by somebody, who can let it go on"
    return ""


def agreeing(inspection: Inspection) -> Sequence[str]:
    """The sources that show that the job hangs, if two agree and none shows that it works; []
    otherwise: then it is not ended."""
    sources = inspection.sources
    return sources.stands if len(sources.stands) > 1 and not sources.works else []
