"""Who is waited for, by the dumps of torch's flight recorder: entries as groups and steps with the
ranks of the job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.waiting import (
    COMPLETED,
    LAUNCHED,
    MESSAGE,
    STARTED,
    Group,
    Recording,
    Step,
    WaitedFor,
    waited_for,
)
from unhang.jobs.flight import Entry, Flight

NEWEST = 256  # launches of a group at a rank, beside the open ones
MOMENT_S = 5.0  # in which a job that moves may have called something that not all have entered
_STATES = {"started": STARTED, "completed": COMPLETED}
_Members = tuple[int, ...]


@dataclass(frozen=True)
class _Sent:
    """A message as one of its two ranks recorded it. place: among the launches of the rank."""

    rank: int
    place: int
    state: str
    entry: Entry


def recording_of(flights: Sequence[Flight], waiting: Iterable[int] = ()) -> Recording | None:
    """What the dumps of one job show, None without a dump. A dump without a rank counts by its
    place if no dump has one, else not at all. waiting: as waited_for() takes it."""
    by_rank = ranked(flights)
    if not by_rank:
        return None
    moving = [
        rank for rank, flight in by_rank.items() if any(entry.is_new for entry in flight.entries)
    ]
    if (
        len(moving) * 2 > len(by_rank)
        or any(map(_was_moving, by_rank.values()))
        or _ended_during_the_dumps([*by_rank.values()])
    ):
        return Recording(tuple(by_rank), WaitedFor(), went_on=True)
    return Recording(tuple(by_rank), _answer(by_rank, moving, waiting))


def _answer(
    by_rank: Mapping[int, Flight], moving: Sequence[int], waiting: Iterable[int]
) -> WaitedFor:
    names = _Names(by_rank)
    groups = {
        (group := names.group(rank, name)).name: group
        for rank, those in names.members.items()
        for name in those
    }
    steps: list[tuple[int, Step]] = []
    sent: dict[tuple[str, int, int], list[_Sent]] = {}
    for rank, flight in by_rank.items():
        for place, launch in enumerate(_launches(flight.entries)):
            group = names.group(rank, launch[0].group)
            groups[group.name] = group
            state = _state(launch, flight)
            if not launch[0].is_message:
                steps.append((place, _step(rank, group, launch, state, flight.file)))
            for entry in launch:
                ends = _ends(entry, rank, group)
                if ends:
                    key = (group.name, *ends)
                    sent.setdefault(key, []).append(_Sent(rank, place, state, entry))
    recorded = {
        (entry.group, entry.is_message) for flight in by_rank.values() for entry in flight.entries
    }
    for rank, flight in by_rank.items():
        for name, step in _by_status(rank, flight, names):
            if (name, False) in recorded and (name, True) not in recorded:
                steps.append((len(flight.entries), step))
    blocked = _oldest_open(steps)
    for key, those in sent.items():
        group, numbered = _messages(key, those, by_rank, blocked)
        groups[group.name] = group
        steps += numbered
    steps.sort(key=lambda one: one[0])
    return waited_for(
        groups.values(), [step for _, step in steps], by_rank, complete=True, once=True,
        moving=moving, waiting=waiting,
    )  # fmt: skip


def ranked(flights: Sequence[Flight]) -> dict[int, Flight]:
    """The dumps by the rank of the job, the last if there are several of one."""
    known = {
        rank: flight
        for flight in flights
        if (rank := flight.rank if flight.rank is not None else _rank_by_groups(flight)) is not None
    }
    return dict(sorted(known.items())) if known else dict(enumerate(flights))


def _was_moving(flight: Flight) -> bool:
    """Whether the rank called something shortly before the dump, so that no wait shows a hang."""
    newest = flight.entries[-1] if flight.entries else None
    if newest is None or newest.created_s is None or flight.written_s is None:
        return False
    moment = MOMENT_S if newest.timeout_s is None else min(MOMENT_S, newest.timeout_s)
    return abs(flight.written_s - newest.created_s) < moment


def _ended_during_the_dumps(flights: Sequence[Flight]) -> bool:
    """Whether what is open in one dump ended on another rank after that dump was made: the job
    moved, and who is late in a dump was not waited for."""
    ended: dict[tuple[str, int], float] = {}
    for entry in (one for flight in flights for one in flight.entries if not one.is_message):
        key = (entry.group, entry.seq)
        ended[key] = max(entry.seen_completed_s or 0.0, ended.get(key, 0.0))
    return any(
        ended.get((entry.group, entry.seq), 0.0) > made_s
        for flight in flights
        if (made_s := _made_s(flight))
        for entry in flight.entries
        if entry.state != "completed"
    )


def _made_s(flight: Flight) -> float | None:
    """When the dump was made: torch looks then whether open operations have started."""
    seen = (one.seen_started_s for one in flight.entries if one.state == "started")
    return max(filter(None, seen), default=None)


def _rank_by_groups(flight: Flight) -> int | None:
    """The only rank that is in all groups of a dump."""
    sets = [set(ranks) for _, ranks in flight.groups.values() if ranks]
    common = set.intersection(*sets) if sets else set()
    return common.pop() if len(common) == 1 else None


class _Names:
    """Names of groups for people. torch gives groups of unlike members one name where each rank
    only makes its own (split_group), so the members are part of the key."""

    def __init__(self, by_rank: Mapping[int, Flight]) -> None:
        # of each rank the groups of which it is a member
        self.members = {
            rank: {name: ranks for name, (_, ranks) in flight.groups.items() if rank in ranks}
            for rank, flight in by_rank.items()
        }
        self.descriptions: dict[str, str] = {}
        self.known: dict[str, set[_Members]] = {}
        for rank, flight in by_rank.items():
            for entry in flight.entries:
                self.descriptions.setdefault(entry.group, entry.description)
            for name, (description, _) in flight.groups.items():
                self.descriptions[name] = description
                if name in self.members[rank]:
                    self.known.setdefault(name, set()).add(self.members[rank][name])

    def group(self, rank: int, name: str) -> Group:
        ranks = self.members[rank].get(name) or next(
            (those for those in self.known.get(name, ()) if rank in those), ()
        )
        if not ranks and self.descriptions.get(name) == "default_pg":  # of all ranks
            ranks = tuple(sorted(self.members))
        shown = name
        if self.descriptions.get(name, "") not in ("", "undefined", "?"):
            shown = f"{self.descriptions[name]} ({name})"
        if len(self.known.get(name, ())) > 1 and ranks:
            shown += f" of ranks {fold_ranks(ranks)}"
        return Group(shown, ranks, len(ranks) or None)


def _launches(entries: Iterable[Entry]) -> list[list[Entry]]:
    """Entries that were launched together: one, or those of a coalesced call, which share a number
    and end with the call itself."""
    found: dict[tuple[str, bool, int], list[Entry]] = {}
    for entry in entries:
        found.setdefault((entry.group, entry.is_message, entry.seq), []).append(entry)
    counts = Counter((group, is_message) for group, is_message, _ in found)
    kept = []
    for (group, is_message, _), launch in found.items():
        counts[group, is_message] -= 1
        if counts[group, is_message] < NEWEST or launch[-1].state != "completed":
            kept.append(launch)
    return kept


def _state(launch: Sequence[Entry], flight: Flight) -> str:
    """torch never completes the parts of a coalesced call, only the call, and a dump of active
    entries holds the parts of calls that are long done."""
    last = launch[-1]
    if len(launch) > 1 and not last.name.endswith("coalesced"):
        _, completed = flight.status.get(-1 if last.pg_id is None else last.pg_id, (-1, -1))
        return COMPLETED if completed >= last.seq else LAUNCHED
    return _STATES.get(last.state, LAUNCHED)


def _step(rank: int, group: Group, launch: Sequence[Entry], state: str, file: str) -> Step:
    parts = [one for one in launch if not one.name.endswith("coalesced")] or list(launch)
    names = list(dict.fromkeys(one.name for one in parts))
    where = next((one.where for one in reversed(launch) if one.where), "")
    return Step(
        rank, group.name, " and ".join(names[:4]), parts[0].seq, state,
        parts[0].sizes if len(launch) == 1 else "", where, file,
    )  # fmt: skip


def _ends(entry: Entry, rank: int, group: Group) -> tuple[int, int] | None:
    """(sender, receiver) of a message as ranks of the job; None where they are unknown."""
    if entry.message is None:
        return None
    ends = entry.message
    if group.members:
        if max(ends) >= len(group.members):
            return None
        ends = (group.members[ends[0]], group.members[ends[1]])
    return ends if rank in ends and ends[0] != ends[1] else None


def _oldest_open(steps: Sequence[tuple[int, Step]]) -> dict[int, int]:
    """{rank: place of its oldest collective that is not completed}."""
    return {step.rank: place for place, step in reversed(steps) if step.state != COMPLETED}


def _messages(
    key: tuple[str, int, int],
    sent: Sequence[_Sent],
    by_rank: Mapping[int, Flight],
    blocked: Mapping[int, int],
) -> tuple[Group, list[tuple[int, Step]]]:
    """The messages from one rank to another, numbered. Each rank counts all its messages of a
    group, so their numbers say nothing to the other one. They are counted from the first if both
    recorded all; else by their order among the open ones. A message may have left before its
    receiver came to it: one that is queued behind a collective of the receiver does not show that
    it was not sent."""
    name, sender, receiver = key
    group = Group(f"{name}, {sender} to {receiver}", (sender, receiver), 2)
    whole = all(rank in by_rank and _is_whole(by_rank[rank]) for rank in (sender, receiver))
    found: list[tuple[int, Step]] = []
    open_sends = sum(one.rank == sender and one.state != COMPLETED for one in sent)
    counts: Counter[int] = Counter()
    for one in sent:
        if whole or one.state != COMPLETED:
            counts[one.rank] += 1
        late = one.rank == receiver and counts[receiver] > open_sends
        if not whole and late and blocked.get(receiver, one.place) < one.place:
            continue
        number = counts[one.rank] if whole or one.state != COMPLETED else 0
        step = Step(
            one.rank, group.name, MESSAGE, number, one.state,
            one.entry.sizes if whole else "", one.entry.where, by_rank[one.rank].file,
        )  # fmt: skip
        found.append((one.place, step))
    return group, found


def _is_whole(flight: Flight) -> bool:
    """Whether the ring of the recorder has lost nothing."""
    records = [entry.record for entry in flight.entries]
    return records == list(range(len(records)))


def _by_status(rank: int, flight: Flight, names: _Names) -> Iterator[tuple[str, Step]]:
    """(torch's name of the group, step) of how far a rank is in groups of which no entry is left.
    Of no use for a group with messages, whose numbers share the field."""
    recorded = {entry.group for entry in flight.entries}
    for name, (enqueued, completed) in _status_by_name(flight).items():
        if name in recorded or enqueued < 0:
            continue
        group = names.group(rank, name).name
        for seq in sorted({min(completed + 1, enqueued), enqueued}):
            state = COMPLETED if completed >= seq else LAUNCHED
            yield name, Step(rank, group, "", seq, state, source=flight.file)


def _status_by_name(flight: Flight) -> dict[str, tuple[int, int]]:
    """torch writes the state by its own number of a group and nowhere the name, but for entries.
    Both count up as groups are made, so they go in one order if there are as many of them."""
    known = {entry.pg_id: entry.group for entry in flight.entries if entry.pg_id is not None}
    if all(name.isdigit() for name in flight.groups):
        named = sorted(flight.groups, key=int)
        paired = dict(zip(sorted(flight.status), named, strict=False))
        if len(named) == len(flight.status) and all(
            paired.get(number) == name for number, name in known.items()
        ):
            known = paired
    return {known[number]: those for number, those in flight.status.items() if number in known}
