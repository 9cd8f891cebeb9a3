"""What NCCL's RAS reports of the job's communicators: who waits for whom. Values in, values out.

A rank that launched an operation which another rank of the communicator has not launched waits
there; see `waiting.py`. RAS counts what was launched: an operation that all launched and none ends
looks well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from unhang.core.verdict.waiting import COMPLETED, LAUNCHED, Group, Step, WaitedFor, waited_for


@dataclass(frozen=True)
class Lag:
    """One operation of one communicator that some ranks launched oftener than others. counts:
    {rank: times}."""

    communicator: str
    op: str
    counts: Mapping[int, int]

    @property
    def highest(self) -> int:
        """The operation in which those ahead are."""
        return max(self.counts.values())

    def behind(self) -> set[int]:
        """Ranks that have not launched it."""
        return {rank for rank, count in self.counts.items() if count < self.highest}


@dataclass(frozen=True)
class Standing:
    """What RAS knows of the job. moved: a count rose between the looks (None: one look alone).
    ranks: of all communicators. missing: {rank: whether RAS takes it for dead}. total: {rank:
    operations launched}; starting: ranks that still set up a communicator; sharing: two
    communicators in which something was launched share two ranks; counts_all: the answer has the
    counts of all operations, as JSON has and text has not. waiting: ranks that other evidence shows
    in a wait."""

    version: str = ""
    moved: bool | None = None
    lags: tuple[Lag, ...] = ()
    ranks: frozenset[int] = frozenset()
    missing: Mapping[int, bool] = field(default_factory=dict)
    errors: Mapping[int, str] = field(default_factory=dict)
    total: Mapping[int, int] = field(default_factory=dict)
    places: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    starting: frozenset[int] = frozenset()
    world_size: int | None = None
    sharing: bool = False
    counts_all: bool = False
    waiting: Collection[int] = ()

    @property
    def left(self) -> list[int]:
        """Ranks that have aborted or destroyed a communicator, as the text and the JSON of RAS have
        it."""
        return sorted(
            rank
            for rank, error in self.errors.items()
            if error in ("NOCOMM", "ABORT", "aborted") and not self.moved
        )

    @cached_property
    def waited(self) -> WaitedFor:
        """Who is waited for. RAS counts each kind of operation by itself."""
        return waited_for(
            *groups_and_steps(self.lags),
            complete=True,
            launched=self.total if self.counts_all else None,
            once=self.moved is None,
            waiting=self.waiting,
        )


def groups_and_steps(lags: Iterable[Lag]) -> tuple[list[Group], list[Step]]:
    """Each kind of operation of a communicator is numbered apart. Who launched more than the last
    rank waits for it, in the first operation that the last has not launched."""
    lags = list(lags)
    groups, steps = [], []
    for lag in lags:
        name = f"communicator {lag.communicator}"
        if sum(one.communicator == lag.communicator for one in lags) > 1:
            name += f" ({lag.op})"
        last = min(lag.counts.values())
        groups.append(Group(name, tuple(sorted(lag.counts)), len(lag.counts)))
        steps += [
            Step(rank, name, lag.op, last + (count > last), LAUNCHED if count > last else COMPLETED)
            for rank, count in lag.counts.items()
        ]
    return groups, steps
