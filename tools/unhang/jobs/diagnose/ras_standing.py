"""Who is waited for, by answers of NCCL's RAS that somebody saved. Values in, values out.

RAS numbers ranks within each communicator. The largest one numbers them as the job does, and
processes and ranks that it does not name follow from their neighbours (`ras_ranks.py`). Which rank
of the job another one is, is open: it gets a number below 0.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any

from unhang.core.verdict.communicators import Standing
from unhang.core.verdict.rendering import ranks_wait
from unhang.core.verdict.waiting import POSSIBLE, Wait, WaitedFor
from unhang.jobs.diagnose.logs.ras_answers import RasAnswer, first_and_last
from unhang.jobs.diagnose.logs.ras_ranks import members_by_stride, ranks_by_neighbours
from unhang.jobs.diagnose.waits import named_in
from unhang.jobs.ras_counts import (
    Key,
    communicator_rows,
    places_of,
    ranks_by_largest,
    standing_between,
)

MOST_SHOWN = 4


@dataclass(frozen=True)
class RasStanding:
    """What the answers show. last: the newest. looks: 1 or 2. moved: more was launched between
    them, so the job runs."""

    standing: Standing
    last: RasAnswer
    looks: int

    @property
    def moved(self) -> bool:
        """Whether the job runs."""
        return self.standing.moved is True

    @property
    def waited(self) -> WaitedFor:
        """Who is waited for. One look may have met a running job between two launches."""
        waited = self.standing.waited
        if self.moved:
            return WaitedFor()
        if self.silent:  # those that are behind wait for them too
            return WaitedFor(tuple(self.silent), certainty=POSSIBLE)
        waited = _unlike_calls(waited)
        is_once = self.looks == 1 and not waited.left_the_order
        return replace(
            waited,
            waits=tuple(map(self._with_line, waited.waits)),
            certainty=POSSIBLE if is_once else waited.certainty,
        )

    def _with_line(self, wait: Wait) -> Wait:
        """The wait with a step that has the line of a rank which it is for."""
        for line in filter(None, map(self.line_of, wait.awaited[:1])):
            step = replace(wait.steps[0], source=line["file"], line=line["line"])
            return replace(wait, steps=(step,))
        return wait

    @property
    def even_ranks(self) -> int:
        """The size of the job where RAS counts equally many launches of all its ranks: then none is
        absent, whoever has no line in a log. 0 where it does not."""
        odd = self.standing.lags or self.standing.errors or self.silent
        is_odd = self.moved or odd or self.waited.names_somebody
        return 0 if is_odd else self.standing.world_size or 0

    @property
    def silent(self) -> list[int]:
        """Ranks that did not answer RAS."""
        return [] if self.moved else sorted(self.standing.missing)

    @property
    def places(self) -> dict[int, tuple[str, int]]:
        """{rank: (host, process)} of those that a line names; others are only counted."""
        return {rank: place for rank, place in self.standing.places.items() if place[1] >= 0}

    def who(self, rank: int) -> str:
        """rank 1 (process 705 on node 10.0.0.4), or the process alone."""
        place = self.places.get(rank)
        where = f"process {place[1]} on node {place[0]}" if place else ""
        if rank < 0:
            return where
        return f"rank {rank}" + (f" ({where})" if where else "")

    def label(self, rank: int) -> str:
        """rank 1, or process 705 where RAS does not report its rank."""
        place = self.places.get(rank)
        return f"process {place[1]}" if rank < 0 and place else f"rank {rank}"

    def line_of(self, rank: int) -> dict[str, Any] | None:
        """The line that names the rank's process, as {file, line, text}."""
        if not (place := self.places.get(rank)):
            return None
        line, text = self.last.line_of(place[1])
        return {"file": self.last.file, "line": line, "text": text}


def _unlike_calls(waited: WaitedFor) -> WaitedFor:
    """Ranks of one communicator that wait for each other in two kinds of operations called unlike
    things; so did few in an operation that most others never called before."""
    waits = waited.crossed if waited.ring else waited.waits
    names = {_communicator(wait) for wait in waits}
    if len(names) != 1:
        return waited
    first = max(waits, key=lambda wait: len(wait.waiting))
    calls = {f"{wait.operation} #{wait.seq}": wait.waiting for wait in waits}
    if not waited.ring and first.seq == 1 and len(first.behind) > 2 * len(first.waiting):
        calls["another operation or none"] = first.behind
    elif not waited.ring or sum(map(len, calls.values())) > len({*chain(*calls.values())}):
        return waited
    ranks = tuple(sorted(chain(*calls.values())))
    group = replace(first.group, name=_communicator(first))
    unlike = Wait(group, first.operation, first.seq, ranks, calls=calls, steps=first.steps)
    return WaitedFor(different=(unlike,), certainty=waited.certainty)


def _communicator(wait: Wait) -> str:
    return wait.group.name.partition(" (")[0]


def ras_standing(answers: Sequence[RasAnswer], waiting: Collection[int] = ()) -> RasStanding | None:
    """None without an answer. waiting: ranks that other evidence shows in a wait."""
    if not answers:
        return None
    first, last = first_and_last(answers)
    names = _names(last)
    standing = standing_between(first.found, last.found, names, waiting=waiting)
    return RasStanding(standing, last, 1 if first is last else 2)


def _names(answer: RasAnswer) -> dict[Key, int]:
    names = ranks_by_largest(answer.found)
    rows = communicator_rows(answer.found)
    size = int(rows[0].get("size") or 0) if rows else 0
    gpus = {(str(one[1]), one[2]): one[3] for row in rows for one in places_of(row)}
    names |= ranks_by_neighbours(names, gpus, size)
    unknown = count(-1, -1)
    for row in rows:
        known = {one[0]: names.get((str(one[1]), one[2])) for one in places_of(row)}
        members = members_by_stride(known, row["size"], size) if row["size"] < size else {}
        for one in places_of(row):
            names.setdefault((str(one[1]), one[2]), members.get(one[0], next(unknown)))
        for rank in (rank for group in row["counts"] for rank in group["ranks"]):
            if rank not in known:
                name = rank if row["size"] == size else members.get(rank, next(unknown))
                names.setdefault((str(row["hash"]), -1 - rank), name)
    return names


def named_roots(ras: RasStanding) -> list[int]:
    """Whom RAS names: ranks that others wait for, else ranks that wait for each other, else those
    that left their communicator, else those that do not answer."""
    waited = ras.waited
    named = [rank for rank in named_in(waited) if rank >= 0 or rank in ras.places]
    return named or ras.standing.left or ras.silent


def kind_and_words(ras: RasStanding, named: Sequence[int]) -> tuple[str, str]:
    """What RAS shows of the ranks that it names: a key of
    causes_by_ras in lines.yml; and the same as a sentence."""
    waited = ras.waited
    if waited.left_the_order:
        kind = "order"
        does = "called two groups in another order than the others that wait with it"
    elif waited.waits:
        wait = waited.waits[0]
        does = f"launched fewer operations: {ranks_wait(len(wait.waiting))} in {wait.operation}"
        kind, does = "behind", f"{does} #{wait.seq} of {wait.group.name}"
    elif waited.different:
        kind, does = "unlike", "called another operation than the others of its communicator"
    elif waited.ring:
        kind, does = (
            "ring",
            "wait for each other, each in an operation that the other has not called",
        )
    elif ras.standing.left:
        kind, does = "gone", "has aborted or destroyed a communicator that the others still use"
    elif any(ras.standing.missing.values()):
        kind, does = "dead", "is dead"
    else:
        kind, does = "silent", "does not answer: stopped, gone or in the kernel"
    return kind, f"{', '.join(ras.who(rank) for rank in named[:MOST_SHOWN])} {does}"
