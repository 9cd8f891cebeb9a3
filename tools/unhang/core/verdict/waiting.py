"""Who is waited for in a job of many groups, from any evidence. Values in, values out; ranks are
those of the job (global), whatever numbers the groups use inside.

A rank that has launched number n of a group waits there for every member that has not. Who is
waited for and waits nowhere itself is a root, unless it is in an operation that all entered; a
group whose members that lack also wait somewhere else only follows. Of ranks that wait for each
other in a ring the root is the one that left the order of the others; where no one did, there is no
root, and more evidence (stacks) is needed. Of a ring the odd one is reported first: with a new
peer, or where the fewest wait. A ring comes before a rank without evidence.
Messages between two ranks are groups of two, one for each direction, numbered apart from
collectives.

What one member completed, every member has launched (but for operations with a root and messages).
So a rank that has launched as much as the others completed and is still in an older operation
lags, if others wait: its GPU is stuck. One that has launched less brought evidence of an earlier
moment, and the group says nothing. A rank whose GPU is stuck in its oldest operation waits for
nobody: what it called later is queued.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field

from unhang.core.verdict.rings import (
    MESSAGE,
    Edge,
    Ring,
    entered_in_unlike_order,
    ring_in,
    ring_of,
    waiting_behind,
)

LAUNCHED, STARTED, COMPLETED, REPORTED = "launched", "started", "completed", "reported"
SURE, LIKELY, POSSIBLE = "sure", "likely", "possible"
FEW_OF = 3  # ranks that are heard of, for each one that is not
FEW = 2  # of whom all may have stopped, however few wait
_WITH_ROOT = ("broadcast", "reduce", "gather", "scatter", MESSAGE)


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
    host called it), STARTED (its kernel runs), COMPLETED or REPORTED (a line of the rank
    names the call, but late, or perhaps in another group). operation: "" if unknown. sizes:
    what must agree between the members, "" where nothing must. where: the place in the user's code.
    source, line: the file and line that say so, line None for a file that has no lines."""

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
    """The oldest operation of a group that somebody waits in; where a rank lags, that of the others
    if they wait in one. waiting: ranks that launched it and have not completed it; behind: members
    that brought evidence and had not launched it; reported: those of them with a line that names
    it, late or perhaps in another group; missing: members that brought none; queued: members whose
    GPU is stuck or has other work before it, because the kernel has started on others and not on
    them, or because they lag; passed: members that completed the operation in which those lag.
    calls: {what: ranks} if they called different things under this number."""

    group: Group
    operation: str
    seq: int
    waiting: tuple[int, ...]
    behind: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    queued: tuple[int, ...] = ()
    calls: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    passed: tuple[int, ...] = ()
    reported: tuple[int, ...] = ()

    @property
    def awaited(self) -> tuple[int, ...]:
        """Members without whom it cannot end."""
        return (*self.behind, *self.missing, *(() if self.behind else self.queued))


@dataclass(frozen=True)
class WaitedFor:
    """roots: ranks that others wait for and that wait for nobody, the one with most waiting ranks
    first. waits: operations in which roots are awaited, most waiting ranks first; follows: those
    that only wait behind them; full: those that every member entered and none left. ring: ranks
    that wait for each other, in the operations crossed, the odd one first; that one is a root if
    there is no other. missing: ranks
    without evidence, awaited or not. different: the first operation of each group that members
    called as unlike things. certainty: of the roots, else of the ring. against: by other kinds of
    evidence, which contradict it."""

    roots: tuple[int, ...] = ()
    waits: tuple[Wait, ...] = ()
    follows: tuple[Wait, ...] = ()
    full: tuple[Wait, ...] = ()
    ring: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    different: tuple[Wait, ...] = ()
    certainty: str = POSSIBLE
    crossed: tuple[Wait, ...] = ()
    against: tuple[WaitedFor, ...] = ()

    @property
    def names_somebody(self) -> bool:
        """Whether ranks are waited for, wait for each other, or called unlike things."""
        return bool(self.roots or self.ring or self.different)

    @property
    def waiting(self) -> set[int]:
        """The ranks that wait for others."""
        waits = (*self.waits, *self.follows, *self.full)
        return {rank for wait in waits for rank in wait.waiting} - {*self.roots}

    @property
    def left_the_order(self) -> bool:
        """Whether the roots are the odd ones of a ring: they called two groups in another order
        than the others, or have a wrong peer."""
        return bool(self.roots) and {*self.roots} <= {*self.ring}


@dataclass(frozen=True)
class Recording:
    """The dumps of one job: the ranks that have one, and who is waited for by them. went_on: the
    job moved while they were made, so nobody is."""

    ranks: tuple[int, ...]
    answer: WaitedFor
    went_on: bool = False


def waited_for(
    groups: Iterable[Group],
    steps: Iterable[Step],
    seen: Iterable[int] = (),
    complete: bool = False,
    launched: Mapping[int, int] | None = None,
    moving: Iterable[int] = (),
    once: bool = False,
    waiting: Iterable[int] = (),
) -> WaitedFor:
    """Who is waited for. steps: those of a rank in the order in which it called them. seen: ranks
    that brought evidence, also those without a step. complete: the evidence holds every operation
    that is open at each rank that was seen, as a flight recorder's dump does and a log does not;
    only then an absent step proves that it was not launched. launched: {rank: operations of all
    groups, from the start of the job}, None if not known. moving: ranks that completed something
    just before their evidence was taken. once: the evidence is of one moment, which a job that
    moves has too: that many are waited for by fewer is no hang then. waiting: ranks that other
    evidence shows in a wait for others; for whom is open."""
    by_name = {group.name: group for group in groups}
    by_group: dict[str, dict[int, list[Step]]] = {}
    opened: dict[int, list[Step]] = {}
    calls: dict[int, list[str]] = {}
    used: set[str] = set()
    reported: set[tuple[str, int, int]] = set()
    for step in steps:
        if step.state == REPORTED:
            reported.add((step.group, step.seq, step.rank))
            continue
        calls.setdefault(step.rank, []).append(step.group)
        by_group.setdefault(step.group, {}).setdefault(step.rank, []).append(step)
        if step.state != COMPLETED:
            opened.setdefault(step.rank, []).append(step)
        else:
            used.add(step.group)
    witnesses = {*seen}.union(*by_group.values())
    named = [
        (by_name.get(name, Group(name)), by_rank) for name, by_rank in sorted(by_group.items())
    ]
    early = {rank for _, by_rank in named for rank in _earlier(by_rank)}
    waits = [
        wait
        for one in named
        if (wait := _wait(*one, witnesses, early, reported)) and not {*moving} & {*wait.behind}
    ]
    different = tuple(wait for one in named if (wait := _first_unlike(*one)))
    members = {rank for group in by_name.values() for rank in group.members}
    missing = tuple(sorted(members - witnesses))
    lacking = [wait for wait in waits if wait.awaited]
    edges = _edges(lacking, opened)
    entered = [wait for wait in waits if not wait.awaited]
    roots, ring = _roots_and_ring(edges, lacking, _held(entered, opened), set(missing), {*waiting})
    is_new = all(wait.seq == 1 for wait in lacking)  # nobody behind ever called it
    who_wait = frozenset[int]().union(*(edge.waiting for edge in edges))
    if once and not is_new and len(roots) > max(FEW, len(who_wait)):
        return WaitedFor(missing=missing, different=different)
    full = tuple(wait for wait in entered if not wait.calls)
    crossed = [wait for wait in lacking if ring & {*wait.awaited} and ring & {*wait.waiting}]
    circle = ring_in(ring, crossed, lacking, used, calls if complete else {}, launched)
    if not roots and not ring:
        circle = entered_in_unlike_order(full, opened)
    return _answer(roots, circle, lacking, full, missing, different, complete)


def _earlier(by_rank: Mapping[int, Sequence[Step]]) -> Iterator[int]:
    """The ranks whose evidence is of an earlier moment: others have completed what they had not yet
    launched."""
    done = [
        step.seq
        for those in by_rank.values()
        for step in those
        if step.state == COMPLETED and not _left_early(step.operation)
    ]
    for rank, those in by_rank.items():
        if done and max(step.seq for step in those) < max(done):
            yield rank


def _left_early(operation: str) -> bool:
    """Whether members may leave it before all have entered it."""
    return operation.lower().strip("_") in _WITH_ROOT


def _wait(
    group: Group,
    by_rank: Mapping[int, Sequence[Step]],
    witnesses: set[int],
    early: set[int],
    reported: set[tuple[str, int, int]],
) -> Wait | None:
    """The oldest operation of this group that a rank has not completed; None if there is none, or
    if the evidence is of different moments. reported: (group, number, rank)."""
    open_steps = {
        rank: min(pending, key=lambda step: step.seq)
        for rank, those in by_rank.items()
        if (pending := [step for step in those if step.state != COMPLETED])
    }
    if not open_steps:
        return None
    seq, at, operation = _oldest(open_steps)
    newest = {rank: max(step.seq for step in those) for rank, those in by_rank.items()}
    passed = tuple(sorted(rank for rank in by_rank if newest[rank] >= seq and rank not in at))
    members = group.members or tuple(sorted(by_rank))
    lack = [rank for rank in members if rank in witnesses and newest.get(rank, seq - 1) < seq]
    behind = tuple(rank for rank in lack if rank not in early)
    if lack and not behind:
        return None
    missing = tuple(rank for rank in members if rank not in witnesses)
    queued = {rank for rank, step in at.items() if step.state != STARTED}
    calls = _unlike(step for those in by_rank.values() for step in those if step.seq == seq)
    if calls:
        passed, queued = (), set()  # they left or started something else
    elif passed and not _left_early(operation):
        ahead = {rank: open_steps[rank] for rank in passed if rank in open_steps}
        lag = {rank for rank in at if newest[rank] > seq}
        if early & set(by_rank) or not ahead or not lag:
            return None
        behind, missing, queued = (), (), lag
        seq, at, operation = _oldest(ahead)
    elif passed and not behind and not missing and len(queued) == len(at):
        return None  # the others may have left it early
    elif len(queued) == len(at):
        queued = set()  # no kernel is known to have started: nothing tells them apart
    return Wait(
        group, operation, seq, tuple(sorted(at)), behind, missing, tuple(sorted(queued)),
        calls, tuple(at[rank] for rank in sorted(at)), passed,
        tuple(rank for rank in behind if (group.name, seq, rank) in reported),
    )  # fmt: skip


def _oldest(steps: Mapping[int, Step]) -> tuple[int, dict[int, Step], str]:
    """(the oldest number, {rank: its step} with it, what is called under it)."""
    seq = min(step.seq for step in steps.values())
    at = {rank: step for rank, step in steps.items() if step.seq == seq}
    return seq, at, next((step.operation for step in at.values() if step.operation), "")


def _unlike(steps: Iterable[Step]) -> dict[str, tuple[int, ...]]:
    """{what: ranks} if the members called different things, else {}."""
    calls: dict[str, list[int]] = {}
    named = (  # of a message the other end has another name
        one
        for one in steps
        if one.operation and not one.operation.lower().startswith(("send", "recv"))
    )
    for step in sorted(named, key=lambda step: step.rank):
        calls.setdefault(f"{step.operation} {step.sizes}".strip(), []).append(step.rank)
    return {what: tuple(ranks) for what, ranks in calls.items()} if len(calls) > 1 else {}


def _first_unlike(group: Group, by_rank: Mapping[int, Sequence[Step]]) -> Wait | None:
    """The first operation under whose number the members called different things."""
    by_seq: dict[int, list[Step]] = {}
    for _, those in sorted(by_rank.items()):
        for step in those:
            by_seq.setdefault(step.seq, []).append(step)
    for seq, steps in sorted(by_seq.items()):
        if calls := _unlike(steps):
            return Wait(
                group, steps[0].operation, seq, tuple(step.rank for step in steps), calls=calls,
                steps=tuple(steps),
            )  # fmt: skip
    return None


def _roots_and_ring(
    edges: Sequence[Edge],
    lacking: Sequence[Wait],
    held: set[int],
    missing: set[int],
    elsewhere: set[int],
) -> tuple[list[int], set[int]]:
    """Whom others wait for, the one with most waiting ranks first, and who waits for each other.
    elsewhere: ranks that wait for somebody who is open."""
    elsewhere = elsewhere - {rank for wait in lacking for rank in wait.queued}
    awaited = set().union(*(wait.awaited for wait in lacking))
    waiting = set().union(*(edge.waiting for edge in edges))
    behind = waiting_behind(awaited - waiting, edges)
    absent = set(behind) & missing
    led = {
        rank for root, ranks in behind.items() if root not in absent | elsewhere for rank in ranks
    }
    ring = ring_of(edges, led)
    excused = _excused(absent, set(behind) - absent - held - elsewhere, edges, lacking, ring)
    found = set(behind) - held - excused
    # in a wait that no kind of evidence shows the other end of, unless all of them are
    found = found - elsewhere or (set() if ring else found)
    return sorted(found, key=lambda root: (root in missing, -len(behind[root]), root)), ring


def _excused(
    absent: set[int],
    roots: set[int],
    edges: Sequence[Edge],
    lacking: Sequence[Wait],
    ring: set[int],
) -> set[int]:
    """The ranks without evidence for which others wait only because of what the evidence shows. A
    rank without evidence may wait itself, wherever another member of its group waits for a root,
    for a rank whose GPU is stuck, or because the members called unlike things."""
    stands = {rank for wait in lacking for rank in wait.queued}
    may_wait = [
        Edge(frozenset(wait.missing), frozenset({*wait.behind, *stands & {*wait.waiting}}))
        for wait in lacking
    ]
    unlike = {rank for wait in lacking if wait.calls for rank in (*wait.waiting, *wait.missing)}
    shown = roots | ring | unlike
    behind = waiting_behind(shown, [*edges, *may_wait])
    led = shown.union(*behind.values())
    unled = [edge for edge in edges if not edge.waiting <= led]
    return {rank for rank in absent if rank in led or not any(rank in one.awaited for one in unled)}


def _answer(
    roots: Sequence[int],
    circle: Ring,
    lacking: Sequence[Wait],
    full: tuple[Wait, ...],
    missing: tuple[int, ...],
    different: tuple[Wait, ...],
    complete: bool,
) -> WaitedFor:
    first = [wait for wait in lacking if {*roots} & {*wait.awaited}]
    first.sort(key=lambda wait: (-len(wait.waiting), wait.group.name))
    certainty = _certainty(roots, first, circle, complete)
    if not roots and circle.odd:
        roots = circle.odd
        first = [wait for wait in circle.crossed if {*roots} & {*wait.awaited}]
        certainty = certainty if circle.is_shown else POSSIBLE
    follows = [wait for wait in lacking if wait not in first]
    follows.sort(key=lambda wait: not {*roots} & {*wait.waiting})
    return WaitedFor(
        tuple(roots), tuple(first), tuple(follows), full, circle.ranks, missing, different,
        certainty, circle.crossed,
    )  # fmt: skip


def _held(entered: Sequence[Wait], opened: Mapping[int, Sequence[Step]]) -> set[int]:
    """The ranks that are in an operation that all members entered. Others may wait behind them,
    and it is not their fault."""
    return {
        rank
        for wait in entered
        for rank in wait.waiting
        if (opened[rank][0].group, opened[rank][0].seq) == (wait.group.name, wait.seq)
    }


def _edges(lacking: Sequence[Wait], opened: Mapping[int, Sequence[Step]]) -> list[Edge]:
    """Who waits for whom. A rank whose GPU is stuck in its oldest operation waits for nobody: what
    it called later is only queued behind. Who is further in the group waits for it there."""
    stands = {
        rank for wait in lacking for rank in wait.queued if opened[rank][0].group == wait.group.name
    }
    edges = []
    for wait in lacking:
        further = (
            rank
            for rank in wait.passed
            if any(step.group == wait.group.name for step in opened.get(rank, ()))
        )
        if waiting := {*wait.waiting, *further} - set(wait.queued) - stands:
            edges.append(Edge(frozenset(waiting), frozenset(wait.awaited)))
    return edges


def _certainty(roots: Sequence[int], first: Sequence[Wait], ring: Ring, complete: bool) -> str:
    """Of the roots, else of a ring. Sure is what complete evidence shows of all members of a group:
    a rank that has not launched what the others wait in. A message may have left before its
    receiver came, and a member without evidence may be why another is not there. Of several
    members without evidence it is open which one it is."""
    waits = first or ring.crossed
    if not waits or not all(wait.group.members for wait in waits):
        return POSSIBLE
    if not first:
        return LIKELY
    collectives = [wait for wait in first if wait.operation != MESSAGE and not wait.missing]
    if complete and set(roots) <= {rank for wait in collectives for rank in wait.behind}:
        return SURE
    behind = {rank for wait in first for rank in wait.behind}
    absent = [{*roots} & {*wait.missing} for wait in first]
    return LIKELY if {*roots} & behind or max(map(len, absent)) == 1 else POSSIBLE


def are_few(absent: Sized, heard: Sized) -> bool:
    """Whether the silence of these ranks says of them."""
    return 0 < len(absent) * FEW_OF <= len(heard)
