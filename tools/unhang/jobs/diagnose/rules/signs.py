"""Signs that several rules use: whether a log shows a hang, and whether a line is near the end of its file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from unhang.core.catalogue import table
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import MOST_EVENTS, Event, rank_of
from unhang.jobs.diagnose.matching.statements import is_spoken

OF_A_RUNNING_JOB = ("training_step", "bar", "init_start", "bootstrap", "transport")
LARGE, FAR_BELOW = 32 << 20, 0.25  # bytes of a message that shows the bandwidth; share of what is healthy
FEWEST_SPEEDS = 3  # lines with a program's speed that show a direction
HEADING, BEGINNING = 3, 20  # lines of a report among which its heading is, and what its writer says first


def hang_signs(facts: Facts) -> list[Event]:
    """The lines that report a hang or a timeout, in any wording."""
    names = ["timeout", "store_timeout", "hang_told", "vllm_stall", "jax_stuck", "horovod_stall", "desync", "stack_dump"]
    if not facts.of("training_step"):  # somebody who stops a running job does not report a hang
        names.append("interrupted")
    signs = [event for name in names for event in facts.of(name) if not event.quoted]
    return signs + _busy_and_cool(facts) + server_stands(facts)


def _busy_and_cool(facts: Facts) -> list[Event]:
    """GPUs at full load with little power: they wait in a kernel for each other."""
    rows = [
        event
        for event in facts.of("gpu_load")
        if int(event.fields["load"] or 0) >= 95 and int(event.fields["watt"] or 0) * 10 < int(event.fields["cap"] or 1) * 4
    ]
    return rows if len(rows) > 1 else []


def server_stands(facts: Facts) -> list[Event]:
    """The last lines of a server that has running requests and makes no token: several, or one with more requests waiting than running, because a long prompt
    alone also makes no token for some seconds.
    """
    idle = [event for event in facts.of("server_stands") if not event.quoted]
    ended = (
        "server_serves",
        "server_started",
        "server_idle",
        "server_shut_down",
    )  # what ends a stand: a token, another start, no request left, an end on purpose
    served = [event.line for name in ended for event in facts.of(name) if idle and event.file == idle[-1].file]
    if not idle or (len(served) >= MOST_EVENTS and not near_end(facts, idle[-1])):  # later lines with tokens were not kept
        return []
    rows = [event for event in idle if event.file == idle[-1].file and event.line > max(served, default=0)]
    crowded = bool(rows) and int(rows[-1].fields["waiting"] or 0) > int(rows[-1].fields["running"] or 0)
    return rows if len(rows) > 1 or crowded else []


class FarBelow(NamedTuple):
    """A test's best bus bandwidth and the lowest that healthy groups of these GPUs reach, in GB/s."""

    measured: float
    healthy: float
    gpus: int


def far_below(facts: Facts) -> FarBelow | None:
    """A test of collectives on one machine that is far below what its GPUs reach over NVLink; None for any other, and for GPUs that the table lacks."""
    devices = facts.of("test_device")
    models, hosts = ({event.fields[name] or "" for event in devices} for name in ("model", "host"))
    best = max((float(row.fields["busbw"] or 0) for row in facts.of("bandwidth_row") if int(row.fields["size"] or 0) >= LARGE), default=None)
    if best is None or len(models) != 1 or len(hosts) != 1:
        return None
    words = models.pop().split()
    of_these = [row for row in table("bandwidth").values() if row["gpus"] == len(devices) and row["gpu"] in words and not {"PCIe", "NVL"} & {*words}]
    healthy = min((row["low_gb_s"] for row in of_these), default=0)
    return FarBelow(best, healthy, len(devices)) if best < FAR_BELOW * healthy else None


def is_slow(facts: Facts) -> bool:
    """Whether the job runs and is slow: somebody says so, its own speed falls, or a test measured it, and nothing reports a hang."""
    told = [event for name in ("slow_told", "slow_plain_told", "pause_told", "fading_told") for event in facts.of(name) if not event.quoted]
    return bool(told or speed_falls(facts) or far_below(facts)) and not hang_signs(facts)


def speed_falls(facts: Facts) -> list[Event]:
    """The first and the last line of a program's own speed, if it has fallen by more than a sixth; [] otherwise."""
    rows = [event for event in facts.of("speed") if not event.quoted and float(event.fields["value"] or 0) > 0]
    if len(rows) >= FEWEST_SPEEDS and float(rows[-1].fields["value"] or 0) * 6 < max(float(row.fields["value"] or 0) for row in rows[:2]) * 5:
        return [rows[0], rows[-1]]
    return []


def own_errors(facts: Facts) -> list[Event]:
    """The lines in which a program reports an error in its own words, which no signature explains, and after which the job made no steps."""
    explained = {(event.file, event.line) for event in facts.events if event.signature.kind in ("harmless", "folklore")}
    last: dict[str, int] = {}
    for event in facts.events:
        if event.signature.kind == "progress" or event.signature.fact in ("training_step", "bar"):
            last[event.file] = max(last.get(event.file, 0), event.line)
    lines = [event for event in facts.of("error_line") if not event.quoted and (event.file, event.line) not in explained]
    return [event for event in lines if event.line > last.get(event.file, 0)]


def heading_of_a_failure(facts: Facts) -> Event | None:
    """The first line of a report, or a sentence near its beginning, that names a failure and no hang."""
    told = [event for event in facts.of("heading_failure") if not event.quoted]
    return next((event for event in told if event.line <= HEADING or (event.line <= BEGINNING and is_spoken(event.text))), None)


def is_only_told(facts: Facts) -> bool:
    """Whether a person tells what happened, and shows no log of a job that ran: in a log, lines of programs may read like a person's."""
    runs = any(facts.of(name) for name in OF_A_RUNNING_JOB) or any(event.signature.kind == "progress" for event in facts.events)
    return facts.is_told and not runs


def heading_of_a_hang(facts: Facts) -> Event | None:
    """The first line of a report, if it has a word of a hang."""
    return next((event for event in facts.of("hanging_word") if event.line == 1), None)


class RankState(NamedTuple):
    """queued: the number of the last collective that a rank had handed to NCCL. event: the line that tells it."""

    queued: int
    event: Event


def states_of_ranks(facts: Facts) -> dict[int, RankState]:
    """rank -> its state, of the ranks whose watchdog reports that they had come to a collective that timed out."""
    overdue = {one.seq for one in facts.timeouts if one.seq is not None}
    found: dict[int, RankState] = {}
    for event in facts.of("pg_state"):
        rank, at, queued = rank_of(event), int(event.fields["at"] or 0), int(event.fields["enqueued"] or 0)
        if rank is not None and not event.quoted and at in overdue and queued >= at:
            found.setdefault(rank, RankState(queued, event))
    return found


def near_end(facts: Facts, event: Event) -> bool:
    """Whether the line is among the last of its file."""
    lines: Sequence[tuple[int, str]] = facts.last.get(event.file, ())
    return bool(lines) and event.line >= lines[0][0]
