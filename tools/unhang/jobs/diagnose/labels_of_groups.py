"""Which group each overdue collective is in: the line after it names group and number, and two
threads of a process may mix their lines. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from unhang.jobs.diagnose.logs.group_numbers import GroupLabel, parse_group_label
from unhang.jobs.diagnose.matching.scanning import Event

Call = tuple[str | None, str | None]  # operation and size, as the line has them
Thread = tuple[str, int | None]  # file, and the rank that stands before the line


@dataclass(frozen=True)
class Sighting:
    """A line that shows a rank as a member of a group. reached, completed: numbers of operations
    that it had launched and finished, None if the line does not say."""

    label: GroupLabel | None
    rank: int | None
    event: Event
    overdue: int | None = None
    reached: int | None = None
    completed: int | None = None


@dataclass
class _Process:
    """Lines of one process. pending: timeouts without a group yet; doubtful: (label, timeouts of
    which one is its)."""

    pending: list[Event] = field(default_factory=list)
    doubtful: list[tuple[GroupLabel, list[Event]]] = field(default_factory=list)


def number_of_timeout(event: Event) -> int | None:
    """What a watchdog's line has in brackets: the number of the rank in the group, or in newer
    releases the rank of the job."""
    shown = event.fields.get("pgrank") or event.fields.get("rank")
    return int(shown) if shown else None


def labels_of_timeouts(
    timeouts: Iterable[Event], sightings: Iterable[Sighting]
) -> dict[int, GroupLabel]:
    """{id of a timeout's event: its group}. A doubtful one has the group in which others wait in
    the same operation of the same size."""
    found: dict[int, GroupLabel] = {}
    calls: dict[str, set[Call]] = {}
    processes: dict[Thread, _Process] = {}
    lines: list[tuple[Event, Sighting | None]] = [(event, None) for event in timeouts]
    lines += [(one.event, one) for one in sightings if one.label and one.overdue is not None]
    lines.sort(key=lambda line: (line[0].file, line[0].line, line[1] is not None))
    for event, sighting in lines:
        process = processes.setdefault((event.file, event.prefix.own_rank), _Process())
        if sighting is not None:
            _settle(sighting, process, found, calls)
        elif (label := parse_group_label(event.text)) and label.number == number_of_timeout(event):
            found[id(event)] = label
        else:
            process.pending.append(event)
    for process in processes.values():
        _settle_doubtful(process, found, calls)
    return found


def _settle(
    sighting: Sighting,
    process: _Process,
    found: dict[int, GroupLabel],
    calls: dict[str, set[Call]],
) -> None:
    label = sighting.label
    if label is None:
        return
    able = [event for event in process.pending if _may_be(event, sighting, label)]
    if len(able) == 1:
        _give(able[0], label, process, found)
        calls.setdefault(label.mesh or label.name, set()).add(_call(able[0]))
    elif able and label.name not in {other.name for other, _ in process.doubtful}:
        process.doubtful.append((label, able))


def _may_be(event: Event, sighting: Sighting, label: GroupLabel) -> bool:
    number, own = number_of_timeout(event), event.prefix.own_rank
    return event.fields.get("seq") == str(sighting.overdue) and (
        number == label.number or (own is not None and number == own)
    )


def _give(event: Event, label: GroupLabel, process: _Process, found: dict[int, GroupLabel]) -> None:
    found[id(event)] = label
    process.pending.remove(event)


def _settle_doubtful(
    process: _Process, found: dict[int, GroupLabel], calls: Mapping[str, set[Call]]
) -> None:
    for label, able in process.doubtful:
        left: Sequence[Event] = [event for event in able if event in process.pending]
        alike = [event for event in left if _call(event) in calls.get(label.mesh or label.name, ())]
        if chosen := (alike or left)[:1]:
            _give(chosen[0], label, process, found)


def _call(event: Event) -> Call:
    return event.fields.get("op"), event.fields.get("numel_in")
