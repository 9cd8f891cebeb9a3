"""How a job ended: at its own end or before a further start, after failures of an attempt that was repeated, in the middle of a traceback."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from unhang.diagnose.scanning import Event

if TYPE_CHECKING:
    from unhang.diagnose.facts import Facts

ENDS = ("healthy_end", "average_bandwidth", "end_told")
FAULTS = ("error", "symptom")
# What ranks that are still there print when the one that hosts the store has ended, as it does after a good end as well.
AT_EXIT = ("torch-store-peer-gone", "process-group-not-destroyed")
STARTS = ("launch_shape", "init_start", "bootstrap", "member")
START_IDS = ("omp-threads-banner",)
_SAID_TO_BE_SURVIVED = re.compile(r"\b(?i:retry(?:ing)?|retries|will try again|trying again|skipp(?:ed|ing)|ignor(?:ed|ing)|fall(?:s|ing)? back)\b")
_FIRST_STEP = re.compile(r"\bstep {1,6}[01]\b")
_FRAME = re.compile(r"^(?:\[\w{1,20}\]:? {0,4})?(?:File \".{1,300}\", line \d{1,7}\b|#\d{1,4} )")


def without_what_a_good_end_outlived(events: Sequence[Event]) -> Sequence[Event]:
    """The events of one file; where the job came to its end, without the failures of earlier attempts and without what its own end makes others print."""
    ends = [event.line for event in events if event.signature.fact in ENDS and not event.quoted]
    if not ends:
        return events
    repeated = max((event.line for event in events if event.signature.fact == "restarted" and not event.quoted), default=0)
    late = [event for event in events if event.signature.kind in FAULTS and not event.quoted and event.line > repeated and not _is_said_to_be_survived(event)]
    if any(event.signature.id not in AT_EXIT or event.line < ends[0] for event in late) or ends[-1] < repeated:
        return events
    survived = {event.line for event in events if event.signature.kind in FAULTS}
    return [event for event in events if event.line not in survived]


def _is_said_to_be_survived(event: Event) -> bool:
    """Whether the line itself says that what failed is tried again or left out."""
    return bool(_SAID_TO_BE_SURVIVED.search(event.text))


def started_again(facts: Facts, end: Event) -> Event | None:
    """A line of a further start that stands after the job's end in the same file: the log has another job, whose end does not stand in it."""
    later = (event for event in facts.events if event.file == end.file and event.line > end.line and not event.quoted)
    return next((event for event in later if _starts(event)), None)


def _starts(event: Event) -> bool:
    return (
        event.signature.fact in STARTS or event.signature.id in START_IDS or (event.signature.fact == "training_step" and bool(_FIRST_STEP.search(event.text)))
    )


def unfinished_traceback(facts: Facts) -> Event | None:
    """A traceback after which no line says what was raised, as the log ends within it or the exception has a name that no signature knows."""
    told = {event.file: event.line for event in facts.events if event.signature.kind in FAULTS and not event.quoted}
    open_ones = [event for event in facts.of("traceback") if not event.quoted and event.line > told.get(event.file, 0)]
    return next((event for event in open_ones if _ends_in_frames(facts.last, event)), None)


def _ends_in_frames(last: Mapping[str, Sequence[tuple[int, str]]], event: Event) -> bool:
    return any(_FRAME.search(text) or number == event.line for number, text in last.get(event.file, ()))
