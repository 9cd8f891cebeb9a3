"""Which group each overdue collective is in: the line after it names group and number. Values in,
values out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from unhang.jobs.diagnose.logs.group_numbers import GroupLabel, parse_group_label
from unhang.jobs.diagnose.matching.scanning import Event

Thread = tuple[str, int | None]  # file, and the rank that is before the line


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


def number_of_timeout(event: Event) -> int | None:
    """What a watchdog's line has in brackets: the number of the rank in the group, or in newer
    releases the rank of the job."""
    shown = event.fields.get("pgrank") or event.fields.get("rank")
    return int(shown) if shown else None


def labels_of_timeouts(
    timeouts: Iterable[Event], sightings: Iterable[Sighting]
) -> dict[int, GroupLabel]:
    """{id of a timeout's event: its group}, from the line itself or from the line about its number
    that follows in the same process, where that can be about no other timeout."""
    found: dict[int, GroupLabel] = {}
    pending: dict[Thread, list[Event]] = {}
    lines: list[tuple[Event, Sighting | None]] = [(event, None) for event in timeouts]
    lines += [(one.event, one) for one in sightings if one.label and one.overdue is not None]
    lines.sort(key=lambda line: (line[0].file, line[0].line, line[1] is not None))
    for event, sighting in lines:
        waiting = pending.setdefault((event.file, event.prefix.own_rank), [])
        if sighting is None:
            label = parse_group_label(event.text)
            if label and label.number == number_of_timeout(event):
                found[id(event)] = label
            else:
                waiting.append(event)
        elif sighting.label:
            able = [one for one in waiting if _may_be(one, sighting, sighting.label)]
            if len(able) == 1:
                found[id(able[0])] = sighting.label
                waiting.remove(able[0])
    return found


def _may_be(event: Event, sighting: Sighting, label: GroupLabel) -> bool:
    number, own = number_of_timeout(event), event.prefix.own_rank
    return event.fields.get("seq") == str(sighting.overdue) and (
        number == label.number or (own is not None and number == own)
    )
