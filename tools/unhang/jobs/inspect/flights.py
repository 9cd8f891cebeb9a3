"""What torch's flight recorder tells of a job that seems to hang: which ranks have not recorded the
collective in which the others are.

A dump is a snapshot of the moment when it was written, of a job that may have gone on since: it
never decides whether the job hangs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from unhang.core.text import counted, visible
from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.waiting import Wait
from unhang.jobs.diagnose.rank_names import ring_in_words
from unhang.jobs.flight import Flight, flight_of
from unhang.jobs.flight_steps import recording_of
from unhang.jobs.inspect.ends import NEXT
from unhang.jobs.inspect.job_look import Verdict, suspected
from unhang.jobs.inspect.rank_looks import section
from unhang_node.base.parse.values import as_maps

MOST_RANKS = 1 << 20


def flights_of(documents: Sequence[Mapping[str, Any]]) -> list[Flight]:
    """The dumps that lay on the nodes, one for each rank."""
    found: dict[int, Flight] = {}
    for document in documents:
        for row in as_maps(section(document, "log_tail").get("flights")):
            rank = row.get("rank")
            if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < MOST_RANKS:
                written = row.get("written_s")
                written_s = float(written) if isinstance(written, (int, float)) else None
                found[rank] = flight_of(row, str(row.get("path"))[:400], rank, written_s)
    return [found[rank] for rank in sorted(found)]


def recorded(documents: Sequence[Mapping[str, Any]]) -> tuple[dict[int, str], str]:
    """({rank: what it has not recorded}, one sentence for all); ({}, "") without dumps of several
    ranks, or where they tell no rank apart."""
    flights = flights_of(documents)
    recording = recording_of(flights) if len(flights) > 1 else None
    if recording is None:
        return {}, ""
    answer = recording.answer
    dumped = set(recording.ranks)
    missed = {
        rank: _missed(rank, wait)
        for wait in reversed(answer.waits)
        for rank in wait.awaited
        if rank in answer.roots and rank in dumped and not answer.left_the_order
    }
    for wait in answer.different:
        for rank in wait.waiting:
            missed.setdefault(rank, _differs(rank, wait))
    said = [f"rank {rank} {why}" for rank, why in missed.items()][:2]
    if answer.ring and not missed:
        said = [visible(ring_in_words(answer), 400)]
        ranks = answer.roots if answer.left_the_order else answer.ring
        missed = dict.fromkeys(ranks, "waits for others that wait for it")
    return missed, "; ".join(said)


def _missed(rank: int, wait: Wait) -> str:
    where = f"{visible(wait.operation, 80)} number {wait.seq} of group {_name(wait)}"
    if rank in wait.queued:
        return f"has not ended {where}, which others have ended or started"
    return f"never recorded {where}, which {counted(len(wait.waiting), 'rank')} recorded"


def _differs(rank: int, wait: Wait) -> str:
    called = next(what for what, ranks in wait.calls.items() if rank in ranks)
    others = "; ".join(
        f"rank {fold_ranks(those)}: {visible(other, 80)}"
        for other, those in wait.calls.items()
        if other != called
    )
    return (
        f"called {visible(called, 80)} as number {wait.seq} of group {_name(wait)}, others"
        f" something else: {others}"
    )


def _name(wait: Wait) -> str:
    return visible(wait.group.name, 80)


def with_recorded(
    verdict: Verdict, documents: Sequence[Mapping[str, Any]]
) -> tuple[Verdict, dict[str, Any] | None]:
    """The verdict on a job that hangs or may hang, with what the dumps add to its ranks; where no
    rank is suspected, those who are missing in them. And the row `recorded`: whether the dumps name
    a rank of the verdict (agrees), others (differs), or it named none (alone)."""
    missed, sentence = recorded(documents)
    if not missed:
        return verdict, None
    named = list(verdict.named)
    ranks = {one.suspect.rank for one in named if one.suspect.rank is not None}
    if not ranks:
        named += [
            suspected(
                None,
                rank,
                None,
                "collective",
                f"by torch's flight recorder it {why}",
                NEXT["missed"],
                blind=True,
            )
            for rank, why in list(missed.items())[:8]
        ]
    agreed = sorted(ranks & missed.keys())
    row = {
        "ranks": sorted(missed),
        "says": f"it {missed[agreed[0]]}"
        if len(ranks) == len(missed) == 1 and agreed
        else sentence,
        "beside": "agrees" if agreed else "differs" if ranks else "alone",
    }
    if not ranks:  # the look has no rank of its own to begin with
        headline = f"{verdict.headline}; by torch's flight recorder {sentence}"
        return replace(verdict, named=named, headline=headline), row
    return replace(verdict, named=named), row
