"""Which events of a file count: without faults that the job survived, kills that only follow, and
failures of attempts that a later one made good. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unhang.core.catalogue.own_tables import table
from unhang.jobs.diagnose.matching.scanning import Event, names_in, rank_of

# A batch ran out of memory: if the job still ended normally, a smaller batch was tried.
SURVIVED = ("cuda-out-of-memory", "cublas-alloc-failed", "xla-allocator-out")
BOOT = "Linux version "  # the first line of a boot
# a server that then kills its own processes
ENDS_THE_REST = ("server-watchdog", "server-was-told-to-end")
KILLED_BY_SLURM = "task-was-killed"
SHUT_DOWN, DIED_OF_IT = ("server-was-shut-down",), "server-worker-died"
_POD = re.compile(r"\bpod/[\w.-]{1,250}")
ENDS = ("healthy_end", "average_bandwidth", "end_told", "server_started")
FAULTS = ("error", "symptom")
LINES_OF_TRACEBACK = 60
_REPORTED_AS_SURVIVED = re.compile(
    r"\b(?i:retry(?:ing)?|retries|will try again|trying"
    r" again|skipp(?:ed|ing)|ignor(?:ed|ing)|fall(?:s|ing)? back)\b"
)
STRAGGLER = "straggler-reported"
_RANKS = re.compile(r"(?i)\branks?\W{0,4}(\d{1,6}(?:(?:, ?| and |, and )\d{1,6})*)")
_RESUMES = re.compile(r"[Rr]esum(?:ed|ing) (?:from|training)")


def events_that_count(events: Sequence[Event]) -> Sequence[Event]:
    """The events of one file that say how its job ended."""
    of_this_run = without_ignored_exceptions(without_links_of_a_boot(logged_by_the_job(events)))
    return without_what_a_good_end_outlived(
        without_what_was_retried(without_kills_that_follow(of_this_run))
    )


def logged_by_the_job(events: Sequence[Event]) -> Sequence[Event]:
    """The events of one file. If all its faults follow a ">", the whole log was pasted as a
    quotation, and they count."""
    failures = [event for event in events if event.kind in ("error", "symptom", "healthy")]
    if not any(event.quoted for event in failures) or any(not event.quoted for event in failures):
        return events
    return [
        replace(event, quoted=False) if event.text.startswith(">") else event for event in events
    ]


def without_links_of_a_boot(events: Sequence[Event]) -> Sequence[Event]:
    """The events of one file without links that are down at a boot and then come up: a port begins
    without a link. Of a log that does not show the boot, a link that goes down counts."""
    waits: dict[str, list[int]] = {}  # port -> places of its lines, none came up since the boot
    is_boot = False
    seen_up: set[str] = set()
    begins: set[int] = set()
    for place, event in enumerate(events):
        port = event.fields.get("interface") or event.fields.get("pci") or ""
        if event.fact == "kernel_version" and BOOT in event.text:
            is_boot, seen_up, waits = True, set(), {}
        elif event.fact == "link_up":
            seen_up.add(port)
            begins.update(waits.pop(port, ()))
        elif event.fact == "link_lost" and is_boot and port not in seen_up:
            waits.setdefault(port, []).append(place)
    return [event for place, event in enumerate(events) if place not in begins]


def without_kills_that_follow(events: Sequence[Event]) -> Sequence[Event]:
    """The events of one file without processes that a server killed itself, after its watchdog had
    run out, one of them had failed (sglang-27221) or it was shut down, and without tasks that Slurm
    killed after it had ended the job."""
    ended, by_slurm, shut_down = (
        min(
            (event.line for event in events if event.id in ids and not event.quoted),
            default=None,
        )
        for ids in (ENDS_THE_REST, names_in("by_slurm"), SHUT_DOWN)
    )
    of_it = {
        event.line
        for event in events
        if event.id == DIED_OF_IT and shut_down is not None and event.line > shut_down
    }
    return [
        event
        for event in events
        if event.line not in of_it
        and (ended is None or event.fact != "killed" or event.line < ended)
        and (by_slurm is None or event.id != KILLED_BY_SLURM or event.line < by_slurm)
    ]


def without_what_was_retried(events: Sequence[Event]) -> Sequence[Event]:
    """The events of one file without failed connections, names and waits that must have worked on a
    later try, because the job worked afterwards."""
    ended_after_all = _ended_well_after_all(events)
    too_large = _lines_of_batches_too_large(events) if ended_after_all else ()
    events = [
        event for event in events if event.line not in too_large or event.line > ended_after_all
    ]
    passed = dict.fromkeys(SURVIVED, ended_after_all)
    later: dict[str, list[Event]] = {}
    for row in table("overcome").values():
        shows = [event for event in events if _shows(event, row)]
        for fault in row["faults"]:
            if row["of_one_pod"]:
                later[fault] = shows
            else:
                passed[fault] = shows[-1].line if shows else 0
    return [
        event
        for event in events
        if event.line > passed.get(event.id, 0)
        and not any(
            one.line > event.line and _pod(event) in one.text for one in later.get(event.id, ())
        )
    ]


def _shows(event: Event, row: Mapping[str, Any]) -> bool:
    """Whether the line shows that the faults of a row of the table are overcome."""
    text = event.fields.get(row["field"]) or ""
    return event.fact in row["by"] and not event.quoted and any(one in text for one in row["has"])


def _pod(event: Event) -> str:
    """The pod of a line; "" if it names none."""
    return event.fields.get("pod") or "".join(_POD.findall(event.text)[:1])


def _lines_of_batches_too_large(events: Sequence[Event]) -> set[int]:
    """The lines of batches that ran out of memory before the last step: a smaller batch
    followed."""
    stepped = _last(events, "training_step")
    return {event.line for event in events if event.id in SURVIVED and event.line < stepped}


def _ended_well_after_all(events: Sequence[Event]) -> int:
    """The line of the last healthy end of a job without a failed process; 0 without one. An
    exception because a batch was too large is not a failed process."""
    too_large = _lines_of_batches_too_large(events)
    if any(
        event.fact in names_in("failed") and not event.quoted and event.line not in too_large
        for event in events
    ):
        return 0
    return _last(events, "healthy_end", "server_started")


def _last(events: Sequence[Event], *facts: str) -> int:
    """The last line with one of the facts that nobody only quotes; 0 without one."""
    return max(
        (event.line for event in events if event.fact in facts and not event.quoted), default=0
    )


def without_what_a_good_end_outlived(events: Sequence[Event]) -> Sequence[Event]:
    """The events of one file; if the job ended normally, without failures of earlier attempts and
    without messages that its own end causes."""
    ends = [event.line for event in events if event.fact in ENDS and not event.quoted]
    if not ends:
        return events
    repeated = max((event.line for event in events if _begins_again(event)), default=0)
    late = [
        event
        for event in events
        if event.kind in FAULTS
        and not event.quoted
        and event.line > repeated
        # a line may itself report that what failed is repeated or skipped
        and not _REPORTED_AS_SURVIVED.search(event.text)
    ]
    if (
        any(event.id not in names_in("at_exit") or event.line < ends[0] for event in late)
        or ends[-1] < repeated
    ):
        return events
    survived = {event.line for event in events if event.kind in FAULTS}
    return [event for event in events if event.line not in survived]


def without_slow_majority(events: Sequence[Event], ranks: Iterable[int]) -> tuple[Event, ...]:
    """The events of all files, without lines that call ranks slow if they call most of them so:
    then none is. ranks: of the job, as far as lines name them."""
    lists = [_RANKS.findall(event.text) for event in events if event.id == STRAGGLER]
    slow = {*map(int, re.findall(r"\d+", str(lists)))}
    is_most = len(slow) > 1 and len(slow) * 2 > len({*range(max(slow) + 1), *ranks})
    return tuple(event for event in events if not is_most or event.id != STRAGGLER)


def own_ends(events: Sequence[Event]) -> dict[str, int]:
    """{file with the ranks' normal ends: line of its first step, 0 without one}, if every rank with
    output reports its own end and no step or fault follows; else {}."""
    ends = [event for event in events if event.fact == "healthy_end"]
    last = {event.file: event.line for event in ends}
    first = dict.fromkeys(last, 0)
    for event in reversed(events):
        is_step = event.fact == "training_step"
        if event.line > last.get(event.file, event.line) and (is_step or event.kind in FAULTS):
            return {}
        if is_step:
            first[event.file] = event.line
    return first if {None, *map(rank_of, ends)} >= {*map(rank_of, events), 0, 1} else {}


def without_ignored_exceptions(events: Sequence[Event]) -> Sequence[Event]:
    """The events of one file without the exceptions that Python reports as ignored, which end
    nothing. A fault that is known by its message still counts."""
    gone = {
        line
        for event in events
        if event.fact == "exception_ignored"
        for line in _lines_of_exception(event, events)
    }
    return (
        [
            event
            for event in events
            if event.line not in gone or event.fact not in names_in("of_exceptions")
        ]
        if gone
        else events
    )


def _lines_of_exception(heading: Event, events: Sequence[Event]) -> list[int]:
    """The lines of the exception below its heading, as far as the rank that printed the heading
    printed them."""
    below = [
        event
        for event in events
        if event.follows(heading, LINES_OF_TRACEBACK) and event.fact in names_in("of_exceptions")
    ]
    below = [event for event in below if event.prefix.rank == heading.prefix.rank]
    end = next((event.line for event in below if event.fact == "crash"), 0)
    return [event.line for event in below if event.line <= end]


def _begins_again(event: Event) -> bool:
    """Whether the line belongs to a later attempt: a launcher starts the job again, or the program
    resumes from a checkpoint."""
    return not event.quoted and (
        event.fact == "restarted" or (event.fact == "resumed" and bool(_RESUMES.search(event.text)))
    )
