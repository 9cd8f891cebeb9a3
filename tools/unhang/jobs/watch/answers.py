"""What a verdict means for the watcher: whether the job may be ended for it. Values in, values
out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.jobs.inspect.agreement import PROC
from unhang.jobs.inspect.ends import FROZEN, STOPPED
from unhang.jobs.inspect.verdict import HUNG, UNKNOWN
from unhang.jobs.watch.detector import ENDED, Event
from unhang_node.base.parse.values import as_maps

SLOW_IO = "slow_rank_or_io"
# torch's own watchdog ends a job after ten minutes: by then what flickers is told all the same
LONGEST_STALL_S = 600.0


def with_seen(documents: Sequence[dict[str, Any]], event: Event) -> list[dict[str, Any]]:
    """The evidence of a look, with what only the watcher saw: which ranks woke up again and again
    before it, and on one node which have ended, of whom the look finds nothing."""
    found = [
        {
            **document,
            "ranks": [
                {**row, "wakes": True} if row.get("rank") in event.woken else row
                for row in as_maps(document.get("ranks"))
            ],
        }
        for document in documents
    ]
    if len(found) == 1 and (there := found[0]["ranks"]):
        known = {row.get("rank") for row in there}
        job = {name: there[0].get(name) for name in ("job", "world_size")}
        there += [
            {**job, "rank": rank, "pid": pid, "has_ended": True}
            for rank, pid in event.gone.items()
            if rank not in known
        ]
    return found


def is_hang(event: Event, inspection: Mapping[str, Any]) -> bool:
    """Whether the job hangs: the look says so, or the watcher saw a rank end and the look knows of
    nothing that the others do."""
    return bool(
        inspection["state"] == HUNG or (event.what == ENDED and inspection["state"] == UNKNOWN)
    )


def place_of_a_stall(event: Event, inspection: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where those stand who are said to hang and wait for data, a file or a server, as ranks of a
    healthy job do for a minute too: with another sample or file, or after progress, it is another
    place. () where one of them waits for something else, and where it took too long."""
    named = inspection["suspects"]
    if inspection["state"] != HUNG or not named or any(one["cause"] != SLOW_IO for one in named):
        return ()
    if event.t - event.since >= LONGEST_STALL_S:
        return ()
    of = {(one["host"], one["rank"]) for one in named}
    rows = [row for row in inspection["ranks"] if (row["host"], row["rank"]) in of]
    return (event.since, *((row["host"], row["rank"], row["where"], row["worker"]) for row in rows))


def named_in(inspection: Mapping[str, Any]) -> set[tuple[Any, Any, Any]]:
    """(host, rank, phase) of each suspect: two looks agree if they name the same."""
    return {
        (suspect["host"], suspect["rank"], suspect["phase"]) for suspect in inspection["suspects"]
    }


def halted_words(inspection: Mapping[str, Any]) -> str:
    """That somebody halted a rank, a pause, a debugger or Slurm's suspend: that is his deed, and no
    reason to end the job. "" where nobody did."""
    for one in inspection["suspects"]:
        if one["phase"] in (FROZEN, STOPPED):
            return f"a process of it was {one['phase']} by somebody, who can let it go on"
    return ""


def agreeing(event: Event, inspection: Mapping[str, Any]) -> list[str]:
    """The sources that show that the job stands, if two agree and none shows that it works; []
    otherwise: then it is not ended. A rank that the watcher saw end is what /proc shows, also where
    the look finds it no more."""
    stands, works = (list(inspection["sources"][what]) for what in ("stands", "works"))
    if event.what == ENDED:
        stands, works = (
            [*stands, *([] if PROC in stands else [PROC])],
            [name for name in works if name != PROC],
        )
    return stands if len(stands) > 1 and not works else []
