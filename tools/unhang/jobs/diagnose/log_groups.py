"""Groups of ranks and their steps from the lines of torch's watchdogs and NCCL's start. Values in,
values out.

A watchdog's line about a collective has the rank within its group; the rank of the job is
before the line (`[rank12]:`), and the group in another line about the same number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from unhang.core.verdict.waiting import COMPLETED, LAUNCHED, REPORTED, Group, Step
from unhang.jobs.diagnose.labels_of_groups import Sighting, labels_of_timeouts
from unhang.jobs.diagnose.labels_of_groups import number_of_timeout as _number
from unhang.jobs.diagnose.logs.group_numbers import (
    GroupLabel,
    all_members,
    may_be_of_mesh,
    parse_group_label,
    split_by_stride,
    stride_of,
)
from unhang.jobs.diagnose.logs.line_prefixes import Moment
from unhang.jobs.diagnose.logs.set_up import set_up_waits
from unhang.jobs.diagnose.matching.scanning import Event, names_in, rank_in_name
from unhang.jobs.diagnose.rank_names import UNNAMED

CLOCKS_DIFFER_S = 2.0  # seconds by which clocks of hosts may differ
MOST_AHEAD = 64  # collectives by which ranks that wait in one group can differ
EVERYBODY = "default_pg"
IDLE = "pg_idle"  # the fact of a rank that waits in nothing
WHOLE_JOB = "the job"  # where no line names groups

Process = tuple[str | None, str | None]  # host, pid


@dataclass(frozen=True)
class Timeout:
    """One rank's collective that did not end. rank: of the job, None if the line does not have it;
    group: its name, unique in the log, None if no line has it; number: of the rank in the group.
    seq None before torch 2.0."""

    rank: int | None
    group: str | None
    op: str
    seq: int | None
    numel: int | None
    timeout_ms: int
    ran_ms: int
    event: Event
    number: int | None = None


@dataclass(frozen=True)
class LogGroups:
    """What the lines show of groups. ranks: those that brought a line about themselves. waiting:
    those without a timeout that had launched more than they completed."""

    timeouts: tuple[Timeout, ...] = ()
    groups: tuple[Group, ...] = ()
    steps: tuple[Step, ...] = ()
    ranks: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()


def log_groups(by_fact: Mapping[str, Sequence[Event]], world_size: int | None) -> LogGroups:
    """The groups and steps of a log. world_size: as the log has it, None if it does not."""
    states = [_state(event) for fact in ("pg_state", IDLE) for event in by_fact.get(fact, ())]
    sightings = [one for one in states if not one.event.quoted]
    late = [event for event in by_fact.get("timeout", ()) if not event.quoted]
    labels = labels_of_timeouts(late, sightings)
    timed = [_timeout(event, labels.get(id(event))) for event in late]
    read = _labelled_like_others(timed, sightings)
    if not _in_one_group([one for one, _ in read]):
        read = [_without_guess(one, label) for one, label in read]
    sightings += [Sighting(label, one.rank, one.event) for one, label in read]
    names = _names(sightings, [one for one, _ in read])
    timeouts = tuple(replace(one, group=names.of(label, one)) for one, label in read)
    started = communicators(by_fact.get("init_start", ()))
    members = _members(names, timeouts, _started_as(names.known, started), world_size)
    labelled = {id(one) for one, (_, label) in zip(timeouts, read, strict=True) if label}
    steps = [
        *_overdue_steps(timeouts, labelled, members), *_other_steps(states, names, timeouts)
    ]  # fmt: skip
    ranks = {one.rank for one in sightings if one.rank is not None}
    setting_up, begun = set_up_waits(by_fact, world_size)
    others = ranks.difference(one.rank for one in timeouts)
    waiting = frozenset(
        one.rank
        for one in sightings
        if one.rank in others and (one.reached or 0) > (one.completed or 0)
    )
    return LogGroups(timeouts, (*members, *setting_up), (*steps, *begun), frozenset(ranks), waiting)


def _timeout(event: Event, label: GroupLabel | None) -> tuple[Timeout, GroupLabel | None]:
    part = event.fields
    numel = part.get("numel_in") or _product(part.get("shape"))
    seq = int(part["seq"] or 0) if part.get("seq") else None
    number = label.number if label else _number(event)
    timeout = Timeout(
        _rank(event, number, label), None, part.get("op") or UNNAMED, seq,
        int(numel) if numel else None, int(part["timeout_ms"] or 0), int(part["ran_ms"] or 0),
        event, number,
    )  # fmt: skip
    return timeout, label


def _labelled_like_others(
    read: Sequence[tuple[Timeout, GroupLabel | None]], sightings: Iterable[Sighting]
) -> list[tuple[Timeout, GroupLabel | None]]:
    """A rank that does not name its group is in the one in which others wait at the same number,
    with the same size if there are any, if it is only one; or in that of all ranks, if nobody names
    another."""
    labels: dict[tuple, dict[str, GroupLabel]] = {}
    for one, label in read:
        if label:
            for call in ((one.op, one.seq, one.numel), (one.op, one.seq)):
                labels.setdefault(call, {})[label.name] = label
    everybody = [label for those in labels.values() for label in those.values()] or [
        one.label for one in sightings if one.label
    ]
    found: list[tuple[Timeout, GroupLabel | None]] = []
    for one, label in read:
        same = labels.get((one.op, one.seq, one.numel)) or labels.get((one.op, one.seq), {})
        alike = [*same.values()] or everybody
        is_known = len({other.name for other in alike}) == 1 and one.number is not None
        if label is None and is_known and (alike[0].is_default or alike is not everybody):
            number = one.rank if alike[0].is_default else one.number
            found.append((one, replace(alike[0], number=number or 0)))
        else:
            found.append((one, label))
    return found


def _in_one_group(timeouts: Sequence[Timeout]) -> bool:
    """Whether lines that name no group may all be of the group of all ranks: its numbers are those
    of the job, and nobody is far ahead in another operation."""
    if any(one.number not in (None, one.rank) for one in timeouts):
        return False
    numbers = [one.seq for one in timeouts if one.seq is not None]
    far = numbers and max(numbers) - min(numbers) > MOST_AHEAD
    return not (far and len({one.op for one in timeouts}) > 1)


def _without_guess(one: Timeout, label: GroupLabel | None) -> tuple[Timeout, GroupLabel | None]:
    """In a job of several groups a number within an unknown one is not the rank of the job."""
    is_guess = label is None and one.event.prefix.own_rank is None and one.number is not None
    return (replace(one, rank=rank_in_name(one.event.file)) if is_guess else one), label


def _rank(event: Event, number: int | None, label: GroupLabel | None) -> int | None:
    """The rank of the job: before the line, or the number in the group if that is all ranks or not
    named; otherwise in the name of the file."""
    if event.prefix.own_rank is not None:
        return event.prefix.own_rank
    in_name = rank_in_name(event.file)
    if number is None:
        return event.prefix.rank if event.prefix.rank is not None else in_name
    return number if label is None or label.is_default else in_name


def _product(shape: str | None) -> str | None:
    if not shape:
        return None
    whole = 1
    for part in shape.split(","):
        whole *= int(part) if part.strip().isdigit() else 1
    return str(whole)


def _state(event: Event) -> Sighting:
    label = parse_group_label(event.text)
    number, at = (
        (event.number("rank"), None)
        if event.fact == IDLE
        else (label.number if label else None, event.number("at"))
    )
    queued, completed = event.number("enqueued"), event.number("completed")
    return Sighting(label, _rank(event, number, label), event, at, queued, completed)


@dataclass(frozen=True)
class _Names:
    """by_label: (name, rank) -> the group's name in the log. known: that name -> {number: rank}.
    mesh: that name -> what the group is for. one_group: no line names a group, and all numbers are
    those of the job."""

    by_label: Mapping[tuple[str, int], str]
    known: Mapping[str, Mapping[int, int]]
    mesh: Mapping[str, str]
    one_group: bool

    def of(self, label: GroupLabel | None, timeout: Timeout) -> str | None:
        """The name of a timeout's group."""
        name = _key(label, timeout, self.one_group)
        if name is None or timeout.rank is None:
            return name
        return self.by_label.get((name, timeout.rank), name)


def _key(label: GroupLabel | None, timeout: Timeout | None, one_group: bool) -> str | None:
    """Groups of one key are told apart by their members. Where no line names the group, ranks that
    wait in one operation at one number are together."""
    if label is not None:
        return label.name
    if one_group or timeout is None:
        return None
    return f"those in {timeout.op} #{timeout.seq}"


def _names(sightings: Iterable[Sighting], timeouts: Sequence[Timeout]) -> _Names:
    labels: dict[str, GroupLabel | None] = {}
    seen: dict[str, set[tuple[int, int]]] = {}
    one_group = _in_one_group(timeouts)
    by_event = {id(one.event): one for one in timeouts}
    for one in sightings:
        timeout = by_event.get(id(one.event))
        key = _key(one.label, timeout, one_group)
        number = one.label.number if one.label else timeout.number if timeout else None
        if key is not None and number is not None and one.rank is not None:
            seen.setdefault(key, set()).add((number, one.rank))
            labels.setdefault(key, one.label)
    meshes = Counter(label.mesh for label in labels.values() if label and label.mesh)
    by_label: dict[tuple[str, int], str] = {}
    known: dict[str, Mapping[int, int]] = {}
    mesh: dict[str, str] = {}
    for key, members in seen.items():
        label = labels[key]
        parted = split_by_stride(members)
        for group in parted:
            name = _shown(key, label, meshes)
            if len(parted) > 1:
                name += f" from rank {min(group.values())}"
            known[name], mesh[name] = group, label.mesh if label else ""
            by_label.update({(key, rank): name for rank in group.values()})
    return _Names(by_label, known, mesh, one_group)


def _shown(key: str, label: GroupLabel | None, meshes: Mapping[str, int]) -> str:
    """The mesh's name, with the group's own where several groups are of one mesh."""
    if label is None:
        return key
    if label.is_default:
        return EVERYBODY
    if not label.mesh:
        return f"group {key}"
    return label.mesh if meshes[label.mesh] == 1 else f"{label.mesh} {key}"


def _members(
    names: _Names,
    timeouts: Sequence[Timeout],
    started: Mapping[str, tuple[int, ...]],
    world_size: int | None,
) -> list[Group]:
    """The groups with their ranks, as far as they are proven: by NCCL's lines, by numbers that the
    lines show, or by the stride of groups of the same mesh."""
    found = []
    for name, known in names.known.items():
        if name == EVERYBODY:
            found.append(_everybody(known, world_size))
            continue
        siblings = [
            other
            for other in names.known
            if other == name or (names.mesh[name] and names.mesh[other] == names.mesh[name])
        ]
        found.append(_group(name, siblings, names.known, started))
    if names.one_group and any(one.group is None for one in timeouts):
        known = {one.rank: one.rank for one in timeouts if one.rank is not None}
        found += [replace(_everybody(known, world_size), name=WHOLE_JOB)] if known else []
    return found


def _group(
    name: str,
    siblings: Sequence[str],
    known: Mapping[str, Mapping[int, int]],
    started: Mapping[str, tuple[int, ...]],
) -> Group:
    """siblings: groups of the same mesh, which have one size and one stride. Without NCCL's line
    the group ends where a gap or a second member shows it to."""
    own = known[name]
    lowest = max(max(known[one]) for one in siblings) + 1
    if name in started:
        return Group(name, started[name], len(started[name]))
    strides = {stride for one in siblings if (stride := stride_of(known[one]))}
    members = all_members(own, lowest, strides.pop() if len(strides) == 1 else None)
    others = {rank for one in siblings if one != name for rank in known[one].values()}
    return Group(name, () if others & set(members) or lowest == 1 else members)


def _fits(ranks: Sequence[int], known: Mapping[int, int]) -> bool:
    return len(ranks) > max(known) and all(ranks[at] == rank for at, rank in known.items())


def _started_as(
    known: Mapping[str, Mapping[int, int]], started: set[tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Which communicator each group is, where one alone has its known members at their numbers; one
    that another group has is none for a second. That of all ranks is the last choice."""
    fitting = {name: {one for one in started if _fits(one, own)} for name, own in known.items()}
    largest = max(map(len, started), default=0)
    found: dict[str, tuple[int, ...]] = {}
    for _ in known:
        for name, those in fitting.items():
            left = those - {*found.values()}
            left = {one for one in left if len(one) < largest} or left
            left = {one for one in left if may_be_of_mesh(one)} or left
            if name not in found and len(left) == 1:
                found[name] = left.pop()
    return found


def _everybody(known: Mapping[int, int], world_size: int | None) -> Group:
    """The group of all ranks; without the size of the job it ends with the highest rank seen."""
    size = max(world_size or 0, max(known) + 1)
    return Group(EVERYBODY, all_members(known, size, 1), size if world_size else None)


def ranks_of_processes(lines: Iterable[Event]) -> dict[Process, int]:
    """{(host, process): rank}, from NCCL's `rank 3 nranks 8`: the largest communicator numbers it
    as the job does. None of a process that has several ranks."""
    rows = {
        ((one.prefix.host, one.prefix.pid), one.number("rank"), one.number("nranks"))
        for one in lines
        if one.prefix.pid and not one.quoted
    }
    world = max((size for *_, size in rows), default=0)
    ranks = [(process, rank) for process, rank, size in rows if size == world]
    times = Counter(process for process, _ in ranks)
    return {process: rank for process, rank in ranks if times[process] == 1}


def communicators(starts: Iterable[Event]) -> set[tuple[int, ...]]:
    """The members of each communicator, from NCCL's `rank 3 nranks 8 … commId 0x…`."""
    ranks = ranks_of_processes(starts)
    by_comm: dict[tuple[str | None, int], dict[int, int]] = {}
    for event in starts:
        rank = ranks.get((event.prefix.host, event.prefix.pid))
        if rank is not None and (comm := event.fields.get("comm")):
            key = comm, event.number("nranks")
            by_comm.setdefault(key, {})[event.number("rank")] = rank
    return {all_members(known, size) for (_, size), known in by_comm.items()} - {()}


def begun_late(timeouts: Sequence[Timeout]) -> set[int]:
    """The ids of those that a rank entered only after the timeout of another. For a batch torch
    prints the run time 0, because it measures none: then the beginning is not known."""
    first: dict[object, Moment] = {}
    for time in (one.event.prefix.time for one in timeouts):
        if time and time.at_s < first.setdefault(time.clock, time).at_s:
            first[time.clock] = time
    return {
        id(one)
        for one in timeouts
        if one.ran_ms
        and (time := one.event.prefix.time)
        and (time.since(first[time.clock]) or 0) - one.ran_ms / 1000 > CLOCKS_DIFFER_S
    }


def size_that_must_agree(one: Timeout) -> str:
    """The size of an operation that needs the same on all ranks; "" for another."""
    return str(one.numel) if one.op in names_in("same_size") and one.numel is not None else ""


def _overdue_steps(
    timeouts: Sequence[Timeout], labelled: Collection[int], groups: Iterable[Group]
) -> list[Step]:
    """One for each operation of a rank: its watchdog reports it again when it ends the process. A
    line without a group is a report in each group of the rank that others wait in at this call.
    labelled: the ids of those whose group a line names."""
    found: dict[tuple[object, ...], Step] = {}
    late = begun_late(timeouts)
    called = {(one.group, one.op, one.seq) for one in timeouts if id(one) in labelled}
    for one in (one for one in timeouts if one.rank is not None):
        may_be = [
            (group.name, REPORTED)
            for group in (groups if id(one) not in labelled else ())
            if one.rank in group.members and (group.name, one.op, one.seq) in called
        ]
        own = (one.group or WHOLE_JOB, REPORTED if id(one) in late else LAUNCHED)
        for group, state in (own, *may_be):
            found.setdefault((one.rank, group, one.op, one.seq, one.numel), Step(
                one.rank or 0, group, one.op, one.seq or 0, state,
                size_that_must_agree(one), "", one.event.file, one.event.line,
            ))  # fmt: skip
    return [*found.values()]


def _other_steps(
    states: Iterable[Sighting], names: _Names, timeouts: Sequence[Timeout]
) -> list[Step]:
    """Steps of ranks that report no timeout of their own in a group: what they had launched and
    finished, by the name that the operation has on the others."""
    calls = {(one.group, one.seq): one for one in timeouts}
    told = {(one.group, one.rank) for one in timeouts}
    found = []
    for one in states:
        if one.label is None or one.rank is None or one.reached is None or one.event.quoted:
            continue
        group = names.by_label.get((one.label.name, one.rank))
        if group is None or (group, one.rank) in told:
            continue
        done = one.completed if one.completed is not None else -1
        for seq in range(max(done, 0), min(one.reached, done + 64) + 1):
            call = calls.get((group, seq))
            if seq == done or call:
                found.append(Step(
                    one.rank, group, call.op if call else "", seq,
                    COMPLETED if seq <= done else LAUNCHED,
                    size_that_must_agree(call) if call else "", "",
                    one.event.file, one.event.line,
                ))  # fmt: skip
    return found
