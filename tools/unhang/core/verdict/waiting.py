"""Who is waited for in a job of many groups, from any evidence. Values in, values out; ranks are
those of the job (global), whatever numbers the groups use inside.

A rank that has launched number n of a group waits there for every member that has not. Who is
waited for and waits nowhere itself is a root; a group whose members that lack also wait somewhere
else only follows. Ranks that wait for each other in a ring have no root: they called the groups in
unlike order, or more evidence (stacks) is needed. Messages between two ranks are groups of two, one
for each direction, numbered apart from collectives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

LAUNCHED, STARTED, COMPLETED = "launched", "started", "completed"
SURE, LIKELY, POSSIBLE = "sure", "likely", "possible"


@dataclass(frozen=True)
class Group:
    """A communicator. members: ranks of the job in the order of the group, () if unknown. size: of
    the group, None if unknown."""

    name: str
    members: tuple[int, ...] = ()
    size: int | None = None


@dataclass(frozen=True)
class Step:
    """One operation of one rank in one group. seq: its number in the group. state: LAUNCHED (the
    host called it), STARTED (its kernel runs) or COMPLETED. sizes: what must agree between the
    members, "" where nothing must. where: the place in the user's code. source, line: the file and
    line that tell so, line None for a file that has no lines."""

    rank: int
    group: str
    operation: str
    seq: int
    state: str
    sizes: str = ""
    where: str = ""
    source: str = ""
    line: int | None = None


@dataclass(frozen=True)
class Wait:
    """The oldest operation of a group that somebody waits in. waiting: ranks that launched it and
    have not completed it; behind: members that brought evidence and have not launched it; missing:
    members that brought none; queued: members that launched it while its kernel has started on the
    others and not on them, so their GPU has other work before it. calls: {what: ranks} if they
    called different things under this number."""

    group: Group
    operation: str
    seq: int
    waiting: tuple[int, ...]
    behind: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    queued: tuple[int, ...] = ()
    calls: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    @property
    def awaited(self) -> tuple[int, ...]:
        """Members without whom it cannot end."""
        return (*self.behind, *self.missing) or self.queued


@dataclass(frozen=True)
class WaitedFor:
    """roots: ranks that others wait for and that wait for nobody. waits: operations in which roots
    are awaited, most waiting ranks first; follows: those that only wait behind them; full: those
    that every member entered and none left. ring: ranks that wait for each other. missing: ranks
    without evidence, awaited or not. different: operations in which members called unlike things.
    certainty: of the roots."""

    roots: tuple[int, ...] = ()
    waits: tuple[Wait, ...] = ()
    follows: tuple[Wait, ...] = ()
    full: tuple[Wait, ...] = ()
    ring: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    different: tuple[Wait, ...] = ()
    certainty: str = POSSIBLE


def waited_for(
    groups: Iterable[Group],
    steps: Iterable[Step],
    seen: Iterable[int] = (),
    complete: bool = False,
) -> WaitedFor:
    """Who is waited for. seen: ranks that brought evidence, also those without a step. complete:
    the evidence holds every operation that is open at each rank that was seen, as a flight
    recorder's dump does and a log does not; only then an absent step proves that it was not
    launched."""
    by_name = {group.name: group for group in groups}
    by_group: dict[str, dict[int, list[Step]]] = {}
    for step in steps:
        by_group.setdefault(step.group, {}).setdefault(step.rank, []).append(step)
    witnesses = {*seen, *(rank for ranks in by_group.values() for rank in ranks)}
    waits = [
        wait
        for name, by_rank in sorted(by_group.items())
        if (wait := _wait(by_name.get(name, Group(name)), by_rank, witnesses))
    ]
    members = {rank for group in by_name.values() for rank in group.members}
    return _conclude(waits, tuple(sorted(members - witnesses)), complete)


def _wait(group: Group, by_rank: Mapping[int, Sequence[Step]], witnesses: set[int]) -> Wait | None:
    """The oldest operation of this group that a rank has not completed; None if there is none."""
    open_steps = {
        rank: min(pending, key=lambda step: step.seq)
        for rank, those in by_rank.items()
        if (pending := [step for step in those if step.state != COMPLETED])
    }
    if not open_steps:
        return None
    seq = min(step.seq for step in open_steps.values())
    at = {rank: step for rank, step in open_steps.items() if step.seq == seq}
    newest = {rank: max(step.seq for step in those) for rank, those in by_rank.items()}
    members = group.members or tuple(sorted(by_rank))
    behind = tuple(
        rank for rank in members if rank in witnesses and newest.get(rank, seq - 1) < seq
    )
    missing = tuple(rank for rank in members if rank not in witnesses)
    calls: dict[str, list[int]] = {}
    for rank, step in sorted(at.items()):
        calls.setdefault(f"{step.operation} {step.sizes}".strip(), []).append(rank)
    started = {rank for rank, step in at.items() if step.state == STARTED}
    return Wait(
        group, next(iter(at.values())).operation, seq, tuple(sorted(at)), behind, missing,
        tuple(sorted(set(at) - started)) if started else (),
        {what: tuple(ranks) for what, ranks in calls.items()} if len(calls) > 1 else {},
        tuple(at[rank] for rank in sorted(at)),
    )  # fmt: skip


def _conclude(waits: Sequence[Wait], missing: tuple[int, ...], complete: bool) -> WaitedFor:
    different = tuple(wait for wait in waits if wait.calls)
    lacking = [wait for wait in waits if wait.awaited]
    waiting_ranks = {rank for wait in lacking for rank in wait.waiting if rank not in wait.queued}
    awaited = {rank for wait in lacking for rank in wait.awaited}
    roots = awaited - waiting_ranks
    first = [wait for wait in lacking if roots & set(wait.awaited)]
    follows = [wait for wait in lacking if wait not in first]
    first.sort(key=lambda wait: (-len(wait.waiting), wait.group.name))
    known = all(wait.group.members for wait in first)
    return WaitedFor(
        tuple(sorted(roots)), tuple(first), tuple(follows),
        tuple(wait for wait in waits if not wait.awaited and not wait.calls),
        tuple(sorted(awaited & waiting_ranks)) if lacking and not roots else (),
        missing, different,
        (SURE if complete and not roots & set(missing) else LIKELY) if known else POSSIBLE,
    )  # fmt: skip
