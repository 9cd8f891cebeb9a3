"""How a job ended: normally, before a restart, after repeated failed attempts, or in the middle of a traceback."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from unhang.jobs.diagnose.matching.scanning import Event

if TYPE_CHECKING:
    from unhang.jobs.diagnose.log_facts import Facts

ENDS = ("healthy_end", "average_bandwidth", "end_told", "server_started")
FAULTS = ("error", "symptom")
# Messages of ranks that still run when the rank with the store has ended; they appear after a normal end too.
AT_EXIT = ("torch-store-peer-gone", "process-group-not-destroyed")
OF_EXCEPTIONS = ("traceback", "crash", "error_line")
LINES_OF_TRACEBACK = 60
STARTS = ("launch_shape", "init_start", "bootstrap", "member")
START_IDS = ("omp-threads-banner",)
_REPORTED_AS_SURVIVED = re.compile(r"\b(?i:retry(?:ing)?|retries|will try again|trying again|skipp(?:ed|ing)|ignor(?:ed|ing)|fall(?:s|ing)? back)\b")
_RESUMES = re.compile(r"[Rr]esum(?:ed|ing) (?:from|training)")
_FIRST_STEP = re.compile(r"\bstep {1,6}[01]\b")
_RAISED = re.compile(r"^(?:\[\w{1,20}\]:? {0,4})?(?P<name>(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{2,60})(?:: \S|\s{0,4}$)")  # not indented
# What a launcher or another parent process does while its workers run; its own traceback shows that it was interrupted, and nothing of a worker.
_WAITS = re.compile(
    r"\b(?:agent\.run|launch_agent|_invoke_run|_monitor_workers|p(?:rocess|roc|open|\d?)?\.wait|\w{0,24}\.join|waitpid|wait_for_process|communicate)\(|\w\.join\((?:\)|timeout|step)|"
    r"in (?:launch_agent|_invoke_run|_monitor_workers|_try_wait|_wait|wait|join|communicate|poll|_poll)$"
)
_FRAME = re.compile(r"^(?:\[\w{1,20}\]:? {0,4})?(?:File \".{1,300}\", line \d{1,7}\b|#\d{1,4} )")


def without_what_a_good_end_outlived(events: Sequence[Event]) -> Sequence[Event]:
    """The events of one file; if the job ended normally, without failures of earlier attempts and without messages that its own end causes."""
    ends = [event.line for event in events if event.signature.fact in ENDS and not event.quoted]
    if not ends:
        return events
    repeated = max((event.line for event in events if _begins_again(event)), default=0)
    late = [event for event in events if event.signature.kind in FAULTS and not event.quoted and event.line > repeated and not _is_reported_as_survived(event)]
    if any(event.signature.id not in AT_EXIT or event.line < ends[0] for event in late) or ends[-1] < repeated:
        return events
    survived = {event.line for event in events if event.signature.kind in FAULTS}
    return [event for event in events if event.line not in survived]


def without_ignored_exceptions(events: Sequence[Event]) -> Sequence[Event]:
    """The events of one file without the exceptions that Python reports as ignored, which end nothing. A fault that is known by its message still counts."""
    gone = {line for event in events if event.signature.fact == "exception_ignored" for line in _lines_of_exception(event, events)}
    return [event for event in events if event.line not in gone or event.signature.fact not in OF_EXCEPTIONS] if gone else events


def _lines_of_exception(heading: Event, events: Sequence[Event]) -> list[int]:
    """The lines of the exception below its heading, as far as the rank that printed the heading printed them."""
    below = [event for event in events if 0 < event.line - heading.line <= LINES_OF_TRACEBACK and event.signature.fact in OF_EXCEPTIONS]
    below = [event for event in below if event.prefix.rank == heading.prefix.rank]
    end = next((event.line for event in below if event.signature.fact == "crash"), 0)
    return [event.line for event in below if event.line <= end]


def _begins_again(event: Event) -> bool:
    """Whether the line belongs to a later attempt: a launcher starts the job again, or the program resumes from a checkpoint."""
    return not event.quoted and (event.signature.fact == "restarted" or (event.signature.fact == "resumed" and bool(_RESUMES.search(event.text))))


def _is_reported_as_survived(event: Event) -> bool:
    """Whether the line itself reports that the failed operation is repeated or skipped."""
    return bool(_REPORTED_AS_SURVIVED.search(event.text))


def started_again(facts: Facts, end: Event) -> Event | None:
    """A line of another start after the job's end in the same file: the log contains another job, without its end."""
    later = (event for event in facts.events if event.file == end.file and event.line > end.line and not event.quoted)
    return next((event for event in later if _starts(event)), None)


def _starts(event: Event) -> bool:
    return (
        event.signature.fact in STARTS or event.signature.id in START_IDS or (event.signature.fact == "training_step" and bool(_FIRST_STEP.search(event.text)))
    )


def unfinished_traceback(facts: Facts) -> Event | None:
    """A traceback without a line of its exception, because the log ends within it or no signature knows the exception's name. That of a parent process which
    waited for its workers, or of a job that somebody interrupted, is none.
    """
    if any(not event.quoted for event in facts.of("interrupted")):
        return None
    last_faults = {event.file: event.line for event in facts.events if event.signature.kind in FAULTS and not event.quoted}
    open_ones = [event for event in facts.of("traceback") if not event.quoted and event.line > last_faults.get(event.file, 0)]
    return next((event for event in open_ones if _ends_in_frames(facts.last, event) and not _only_waits(facts, event)), None)


def _only_waits(facts: Facts, traceback: Event) -> bool:
    """Whether a traceback ends, without an exception, in the call by which a parent process waits for its workers."""
    lines = [text.strip() for _, text in facts.last.get(traceback.file, ())]
    frames = [place for place, text in enumerate(lines) if _FRAME.search(text)]
    innermost = lines[frames[-1] : frames[-1] + 2][-1] if frames else ""  # its source, if that was printed
    return bool(_WAITS.search(innermost)) and name_of_exception(facts, traceback) is None


def name_of_exception(facts: Facts, traceback: Event) -> str | None:
    """The name of the exception that ends an unfinished traceback, if a line after its last frame has one."""
    lines = facts.last.get(traceback.file, ())
    frames = [number for number, text in lines if _FRAME.search(text.strip()) or number == traceback.line]
    raised = (found for number, text in lines if frames and number > frames[-1] and (found := _RAISED.search(text)))
    return next((found["name"] for found in raised), None)


def _ends_in_frames(last: Mapping[str, Sequence[tuple[int, str]]], event: Event) -> bool:
    return any(_FRAME.search(text) or number == event.line for number, text in last.get(event.file, ()))
