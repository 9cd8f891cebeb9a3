"""What torch's flight recorder tells of a job that seems to hang: which ranks have not recorded the
collective in which the others are.

A dump is a snapshot of the moment when it was written, of a job that may have gone on since: it
never decides whether the job hangs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unhang.core.text import counted, visible
from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.suspects import Suspect
from unhang.jobs.flight import Flight, collectives_of, compare_flights
from unhang.jobs.inspect.ends import NEXT
from unhang.jobs.inspect.job_look import Named, Verdict
from unhang.jobs.inspect.rank_looks import rows, section

MOST_RANKS = 1 << 20


def flights_of(documents: Sequence[Mapping[str, Any]]) -> list[Flight]:
    """The dumps that lay on the nodes, one for each rank."""
    found: dict[int, Flight] = {}
    for document in documents:
        for row in rows(section(document, "log_tail").get("flights")):
            rank = row.get("rank")
            if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < MOST_RANKS:
                found[rank] = Flight(
                    str(row.get("path"))[:400], rank, collectives_of(row.get("entries"))
                )
    return [found[rank] for rank in sorted(found)]


def recorded(documents: Sequence[Mapping[str, Any]]) -> tuple[dict[int, str], str]:
    """({rank: what it has not recorded}, one sentence for all); ({}, "") without dumps, or where
    they tell no rank apart."""
    flights = flights_of(documents)
    groups = compare_flights(flights)["groups"] if len(flights) > 1 else []
    missed: dict[int, str] = {}
    for rank, why in (pair for group in groups for pair in _missed(group, flights)):
        missed.setdefault(rank, why)
    return missed, "; ".join(f"rank {rank} {why}" for rank, why in list(missed.items())[:2])


def _missed(group: Mapping[str, Any], flights: Sequence[Flight]) -> Iterator[tuple[int, str]]:
    newest = {
        flight.rank: max(
            (entry for entry in flight.entries if entry.group == group["group"]),
            key=lambda entry: entry.seq,
            default=None,
        )
        for flight in flights
    }
    ahead = [entry for rank, entry in newest.items() if entry and rank in group["ahead"]]
    for rank in group["behind"] if ahead else []:
        own, other = newest[rank], max(ahead, key=lambda entry: entry.seq)
        name = visible(other.name.removeprefix("gloo:"), 80)
        after = f" (it stands after {own.seq})" if own else ""
        yield (
            rank,
            (
                f"never recorded {name} number {other.seq} of group"
                f" {visible(group['group'], 80)}{after}, which {counted(len(ahead), 'rank')}"
                " recorded"
            ),
        )
    for what, ranks in group["calls"].items():
        for rank in ranks:
            others = "; ".join(
                f"rank {fold_ranks(those)}: {visible(other, 80)}"
                for other, those in group["calls"].items()
                if other != what
            )
            yield (
                rank,
                (
                    f"called {visible(what, 80)} as number {group['seq']} of group"
                    f" {visible(group['group'], 80)}, others something else: {others}"
                ),
            )


def with_recorded(verdict: Verdict, documents: Sequence[Mapping[str, Any]]) -> Verdict:
    """The verdict on a job that hangs or may hang, with what the dumps say; where nobody is
    suspected, those who are missing in them."""
    missed, sentence = recorded(documents)
    if not missed:
        return verdict
    named = [_with_reason(one, missed) for one in verdict.named]
    if not any(one.suspect.rank is not None for one in named):
        named += [
            Named(
                Suspect(
                    None,
                    rank,
                    None,
                    "collective",
                    f"by torch's flight recorder it {why}",
                    NEXT["missed"],
                    True,
                ),
                None,
            )
            for rank, why in list(missed.items())[:8]
        ]
    return replace(
        verdict, named=named, headline=f"{verdict.headline}; by torch's flight recorder {sentence}"
    )


def _with_reason(named: Named, missed: Mapping[int, str]) -> Named:
    suspect = named.suspect
    if suspect.rank is None or suspect.rank not in missed:
        return named
    return replace(
        named,
        suspect=replace(
            suspect, why=f"{suspect.why}; by torch's flight recorder it {missed[suspect.rank]}"
        ),
    )
