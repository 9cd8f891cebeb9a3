"""What several lines show together, of which rules and conclusions make use: a hang, a slow job, a
program's own errors, a traceback without an end, another start."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from unhang.core.catalogue.own_tables import table
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import MOST_EVENTS, Event, names_in

# bytes of a message that shows the bandwidth; share of what is healthy
LARGE, FAR_BELOW = 32 << 20, 0.25
FEWEST_SPEEDS = 3  # lines with a program's speed that show a direction
START_IDS = ("omp-threads-banner",)
_FIRST_STEP = re.compile(r"\bstep {1,6}[01]\b")
# not indented
_RAISED = re.compile(
    r"^(?:\[\w{1,20}\]:? {0,4})?(?P<name>(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{2,60})(?::"
    r" \S|\s{0,4}$)"
)
# What a launcher or another parent process does while its workers run; its own traceback shows that
# it was interrupted, and nothing of a worker.
_WAITS = re.compile(
    r"\b(?:agent\.run|launch_agent|_invoke_run|_monitor_workers|p(?:rocess|roc|open|\d?)?\.wait|\w{0,24}\.join|waitpid|wait_for_process|communicate)\(|\w\.join\((?:\)|timeout|step)|"
    r"in (?:launch_agent|_invoke_run|_monitor_workers|_try_wait|_wait|wait|join|communicate|poll|_poll)$"  # noqa: E501
)
_FRAME = re.compile(r"^(?:\[\w{1,20}\]:? {0,4})?(?:File \".{1,300}\", line \d{1,7}\b|#\d{1,4} )")


def hang_signs(facts: Facts) -> list[Event]:
    """The lines that report a hang or a timeout, in any wording."""
    names = [*names_in("hang")]
    if not facts.of("training_step"):  # somebody who stops a running job does not report a hang
        names.append("interrupted")
    signs = facts.said(*names)
    return signs + _busy_and_cool(facts) + server_stands(facts)


def _busy_and_cool(facts: Facts) -> list[Event]:
    """GPUs at full load with little power: they wait in a kernel for each other."""
    rows = [
        event
        for event in facts.of("gpu_load")
        if event.number("load") >= 95
        and event.number("watt") * 10 < int(event.fields["cap"] or 1) * 4
    ]
    return rows if len(rows) > 1 else []


def server_stands(facts: Facts) -> list[Event]:
    """The last lines of a server that has running requests and makes no token: several, or one with
    more requests waiting than running, because a long prompt alone also makes no token for some
    seconds."""
    idle = facts.said("server_stands")
    served = [
        event.line
        for name in names_in("serves")
        for event in facts.of(name)
        if idle and event.file == idle[-1].file
    ]
    # later lines with tokens were not kept
    if not idle or (len(served) >= MOST_EVENTS and not near_end(facts, idle[-1])):
        return []
    rows = [
        event
        for event in idle
        if event.file == idle[-1].file and event.line > max(served, default=0)
    ]
    crowded = bool(rows) and rows[-1].number("waiting") > rows[-1].number("running")
    return rows if len(rows) > 1 or crowded else []


class FarBelow(NamedTuple):
    """A test's best bus bandwidth and the lowest that healthy groups of these GPUs reach, in
    GB/s."""

    measured: float
    healthy: float
    gpus: int


def far_below(facts: Facts) -> FarBelow | None:
    """A test of collectives on one machine that is far below what its GPUs reach over NVLink; None
    for any other, and for GPUs that the table lacks."""
    devices = facts.of("test_device")
    models, hosts = ({event.fields[name] or "" for event in devices} for name in ("model", "host"))
    best = max(
        (row.decimal("busbw") for row in facts.of("bandwidth_row") if row.number("size") >= LARGE),
        default=None,
    )
    if best is None or len(models) != 1 or len(hosts) != 1:
        return None
    words = models.pop().split()
    of_these = [
        row
        for row in table("bandwidth").values()
        if row["gpus"] == len(devices) and row["gpu"] in words and not {"PCIe", "NVL"} & {*words}
    ]
    healthy = min((row["low_gb_s"] for row in of_these), default=0)
    return FarBelow(best, healthy, len(devices)) if best < FAR_BELOW * healthy else None


def is_slow(facts: Facts) -> bool:
    """Whether the job runs and is slow: its own speed falls, or a test measured it, and nothing
    reports a hang."""
    return bool(speed_falls(facts) or far_below(facts)) and not hang_signs(facts)


def speed_falls(facts: Facts) -> list[Event]:
    """The first and the last line of a program's own speed, if it has fallen by more than a sixth;
    [] otherwise."""
    rows = [event for event in facts.said("speed") if event.decimal("value") > 0]
    if (
        len(rows) >= FEWEST_SPEEDS
        and rows[-1].decimal("value") * 6 < max(row.decimal("value") for row in rows[:2]) * 5
    ):
        return [rows[0], rows[-1]]
    return []


def own_errors(facts: Facts) -> list[Event]:
    """The lines in which a program reports an error in its own words, which no signature explains,
    and after which the job made no steps."""
    explained = {event.place for event in facts.events if event.kind in ("harmless", "folklore")}
    last = last_steps(facts)
    lines = [event for event in facts.said("error_line") if event.place not in explained]
    return [event for event in lines if event.line > last.get(event.file, 0)]


def last_steps(facts: Facts) -> dict[str, int]:
    """file -> the line of the last step or other progress in it."""
    # events are in the order of their lines
    return {
        event.file: event.line
        for event in facts.events
        if event.kind == "progress" or event.fact in ("training_step", "bar")
    }


def near_end(facts: Facts, event: Event) -> bool:
    """Whether the line is among the last of its file."""
    lines: Sequence[tuple[int, str]] = facts.last.get(event.file, ())
    return bool(lines) and event.line >= lines[0][0]


def started_again(facts: Facts, end: Event) -> Event | None:
    """A line of another start after the job's end in the same file: the log contains another job,
    without its end."""
    later = (event for event in facts.plain if event.follows(end))
    return next(filter(_starts, later), None)


def _starts(event: Event) -> bool:
    return (
        event.fact in names_in("starts")
        or event.id in START_IDS
        or (event.fact == "training_step" and bool(_FIRST_STEP.search(event.text)))
    )


def unfinished_traceback(facts: Facts) -> Event | None:
    """A traceback without a line of its exception, because the log ends within it or no signature
    knows the exception's name. That of a parent process which waited for its workers, or of a job
    that somebody interrupted, is none."""
    if facts.said("interrupted"):
        return None
    last_faults = {event.file: event.line for event in facts.faults}
    open_ones = [
        event for event in facts.said("traceback") if event.line > last_faults.get(event.file, 0)
    ]
    return next(
        (
            event
            for event in open_ones
            if _ends_in_frames(facts.last, event) and not _only_waits(facts, event)
        ),
        None,
    )


def _only_waits(facts: Facts, traceback: Event) -> bool:
    """Whether a traceback ends, without an exception, in the call by which a parent process waits
    for its workers."""
    lines = [text.strip() for _, text in facts.last.get(traceback.file, ())]
    frames = [place for place, text in enumerate(lines) if _FRAME.search(text)]
    # its source, if that was printed
    innermost = lines[frames[-1] : frames[-1] + 2][-1] if frames else ""
    return bool(_WAITS.search(innermost)) and name_of_exception(facts, traceback) is None


def name_of_exception(facts: Facts, traceback: Event) -> str | None:
    """The name of the exception that ends an unfinished traceback, if a line after its last frame
    has one."""
    lines = facts.last.get(traceback.file, ())
    frames = [
        number for number, text in lines if _FRAME.search(text.strip()) or number == traceback.line
    ]
    raised = (
        found
        for number, text in lines
        if frames and number > frames[-1] and (found := _RAISED.search(text))
    )
    return next((found["name"] for found in raised), None)


def _ends_in_frames(last: Mapping[str, Sequence[tuple[int, str]]], event: Event) -> bool:
    return any(
        _FRAME.search(text) or number == event.line for number, text in last.get(event.file, ())
    )
