"""One watched job: its samples go to the detector, and where it makes no progress it is looked at
and answered."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unhang.core.commands.in_place import Screen
from unhang.core.errors import UserError
from unhang.core.taken_signals import signals_taken
from unhang.core.text import counted, visible
from unhang.core.verdict.job import HUNG, IDLE, UNKNOWN
from unhang.jobs.commands.watch_outputs import Outputs
from unhang.jobs.inspect.answer import verdict_of
from unhang.jobs.inspect.bundle import write_bundle
from unhang.jobs.inspect.evidence import evidence_of
from unhang.jobs.inspect.inspecting import inspection_of
from unhang.jobs.inspect.inspection import Inspection
from unhang.jobs.watch.alerts import Alerts
from unhang.jobs.watch.answers import (
    agreeing,
    halted_words,
    named_in,
    place_of_a_stall,
    with_seen,
)
from unhang.jobs.watch.detector import Event, Tick, detect
from unhang.jobs.watch.record import Record
from unhang.jobs.watch.signals import JobSignals
from unhang.jobs.watch.when_to_look import SLOW_EVERY_S, Patience, SlowLooks

TERMINATED = 86
SECOND_LOOK_S = 10.0
MOST_LEFT_OUT = 8  # users of a node whose ranks are not all watched
# Options of a look at a job that trains: no stack and no log of it is read.
FOR_SLOW = {"slow": True, "without": ["stacks", "sockets", "log_tail", "kernel_log", "locks"]}


@dataclass(frozen=True)
class Job:
    """What is watched.

    look          takes options of a look beside the job's own
    name          as it is called in a sentence
    is_ours       it writes to this terminal, or its nodes' GPUs fit into no table
    is_patient    a job in which a look found nothing new is looked at half as often each time
    spared        why it is not to be ended although two looks agree; "" where nothing speaks
                  against it
    reported      takes the headline of a new verdict of a hang
    slow_every_s  seconds of progress until it is looked at for a slow rank, with --slow
    """

    samples: Iterable[Mapping[str, Any]]
    look: Callable[[Mapping[str, Any]], Sequence[dict[str, Any]]]
    end: Callable[[], None]
    is_ours: bool
    name: str = "the job"
    is_patient: bool = False
    spared: Callable[[], str] = str
    reported: Callable[[str], object] = str
    slow_every_s: float = SLOW_EVERY_S
    wait: Callable[[float], object] = time.sleep


def stopped_by_signals() -> AbstractContextManager[None]:
    """As a unit is stopped by systemd, or by a terminal that goes: the record of the watch is
    kept."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    return signals_taken(stop)


def watched(
    job: Job,
    outputs: Outputs,
    to: Record,
    signals: JobSignals | None = None,
) -> int | None:
    """Watches until the job ends; TERMINATED if it was ended here, which no signal interrupts."""
    with _table_of(not job.is_ours) as show:
        no_progress_s = outputs.options.no_progress
        alerts, patience = Alerts(), Patience(no_progress_s)
        slow = SlowLooks(job.slow_every_s, no_progress_s) if outputs.options.slow else None

        def update(tick: Tick, since_s: float) -> None:
            outputs.sampled(tick, since_s)
            to.sampled(tick.t, since_s)
            for line in alerts.of(tick):
                outputs.say(line)
            show(tick, since_s)
            if slow and slow.is_due(tick, since_s):
                _look_for_slow(job, outputs, slow)

        for event in detect(_noted(job.samples, outputs), no_progress_s, update):
            if job.is_patient and not patience.is_due(event):
                continue
            if _answer(event, job, outputs, to):
                if signals:
                    signals.ends_watch = False
                job.end()
                return TERMINATED
    return None


@contextmanager
def _table_of(is_free: bool) -> Iterator[Callable[[Tick, float], None]]:
    """What shows a moment as a table, on a terminal that no output of the job is written to."""
    if not is_free or not sys.stderr.isatty():
        yield lambda _tick, _since_s: None
        return
    from unhang.core.table import printed
    from unhang.core.terminal import terminal_shape
    from unhang.jobs.watch.gpu_table import gpu_table

    screen = Screen(sys.stderr)

    def draw(tick: Tick, since_s: float) -> None:
        width, color, plain = terminal_shape(screen.target, os.environ)
        screen.draw(printed(gpu_table(tick, since_s, width), color, plain).splitlines())

    with redirect_stderr(screen):
        yield draw


def say(text: str) -> None:
    """Prints a line for people."""
    sys.stderr.write(f"unhang watch, {time.strftime('%H:%M:%S')}: {text}\n")
    sys.stderr.flush()


def _noted(lines: Any, outputs: Outputs) -> Any:
    """The samples, with a word about what they show first."""
    for line in lines:
        if "schema" in line:
            outputs.say(
                f"{counted(len(line['ranks']), 'rank')} on {visible(line['host'])}, a sample each"
                f" {line['every_s']:g} s"
            )
            for why in line.get("left_out", [])[:MOST_LEFT_OUT]:
                outputs.say(visible(why, 400))
        elif "silent" in line:
            outputs.say(
                "the sampler got no answer from the driver; it goes on without it. Does nvidia-smi"
                " answer?"
            )
        yield outputs.words.taken_off(line) if outputs.words and "log" in line else line


def _look_for_slow(job: Job, outputs: Outputs, looks: SlowLooks) -> None:
    """Reports ranks that two looks in a row found slow, once. That is no hang: it goes to no
    hook, is in no record and ends no job. Samples queue meanwhile."""
    try:
        inspection = inspection_of(evidence_of(job.look(FOR_SLOW)))
    except UserError as problem:
        why = visible(str(problem), 400)
    else:
        is_told = inspection.state != UNKNOWN or (inspection.pace and inspection.pace.answered)
        why = "" if is_told else visible(inspection.headline, 400)
        if is_told and looks.takes(inspection):
            verdict = verdict_of(inspection)
            outputs.log(verdict)
            if inspection.suspects:
                outputs.show(inspection)
            else:
                outputs.say(verdict)
    if why and looks.fails():
        outputs.say(f"the look for a slow rank failed: {why}")
    outputs.slow_ranks = looks.agreed


def _answer(event: Event, job: Job, outputs: Outputs, to: Record) -> bool:
    """Whether the job is to be ended. A look that fails (the job ended meanwhile, Slurm did not
    answer) ends no watch."""
    if not outputs.is_idle and not outputs.hung:  # either may be so for days
        outputs.say(f"{event.why}; looking at the job")
    try:
        return _looks_hung(event, job, outputs, to)
    except UserError as problem:
        outputs.say(f"the look failed: {visible(str(problem), 400)}")
        return False


def _looks_hung(event: Event, job: Job, outputs: Outputs, to: Record) -> bool:
    """Looks and reports; whether the job is to be ended, which takes two looks that agree and
    --act. Raises UserError."""
    documents, inspection = _looked_at(event, job)
    before, outputs.stalled = outputs.stalled, place_of_a_stall(event, inspection)
    if outputs.stalled not in ((), before):
        one = inspection.suspects[0]
        outputs.say(
            f"rank {one.rank} on {visible(one.host, 80)}: {visible(one.why, 400)}; that"
            " may go on, and is a hang if it is there at the next look too"
        )
        outputs.looked(inspection, None)
        return False
    if inspection.state != HUNG:
        _show(inspection, outputs)
        outputs.looked(inspection, None)
        return False
    named = named_in(inspection)
    is_still = outputs.hung and named == outputs.notified
    if is_still:
        outputs.say(f"still hung, {(event.t - event.since) / 60:.0f} min")
    else:
        _show(inspection, outputs)
        outputs.full, outputs.left_alone = None, ""
        if outputs.options.on_hang != "report":
            outputs.full = _dump(outputs, documents, inspection)
    if headline := outputs.looked(inspection, named, outputs.full):
        to.hung(headline)
        job.reported(headline)
    if outputs.options.on_hang != "terminate":
        return False
    if not is_still:
        outputs.say(f"a second look in {SECOND_LOOK_S:g} s, before a job is ended")
    job.wait(SECOND_LOOK_S)
    _, again = _looked_at(event, job)
    sources = [name for name in agreeing(inspection) if name in agreeing(again)]
    if why := _why_left_alone(job, inspection, again, sources):
        if why != outputs.left_alone:
            outputs.left_alone = why
            _show(again, outputs)
            outputs.say(f"{why}: the job is left alone")
        return False
    is_news = to.would_end(outputs.options.act)
    if not outputs.options.act:
        if is_news:
            outputs.say(
                f"in shadow: {', '.join(sources)} agree that it hangs, and the job would have been"
                " ended; unhang watch --record shows how often that was right, --act ends a job"
            )
        return False
    outputs.say(f"{', '.join(sources)} agree that it hangs: the job is ended")
    where = f"is in {outputs.full.resolve()}" if outputs.full else "could not be written"
    why = verdict_of(again)
    outputs.ended = f"ended {job.name}: {why}; the evidence {where}"
    return True


def _why_left_alone(
    job: Job,
    inspection: Inspection,
    again: Inspection,
    sources: Sequence[str],
) -> str:
    """Why a job is not ended after two looks, "" where nothing speaks against it."""
    if again.state != HUNG or named_in(inspection) != named_in(again):
        return "the two looks do not agree"
    if why := halted_words(again):
        return why
    if len(sources) < 2:
        stands, works = map(", ".join, (again.sources.stands, again.sources.works))
        return (
            f"no two sources agree (it hangs by {stands or 'none'}; it works by {works or 'none'})"
        )
    return job.spared()


def _looked_at(event: Event, job: Job) -> tuple[Sequence[dict[str, Any]], Inspection]:
    """(evidence, verdict)."""
    documents = with_seen(job.look({}), event)
    return documents, inspection_of(evidence_of(documents))


def _show(inspection: Inspection, outputs: Outputs) -> None:
    """Prints the verdict; that a server is still idle is no news."""
    was_idle, outputs.is_idle = outputs.is_idle, inspection.state == IDLE
    if not (was_idle and outputs.is_idle):
        outputs.show(inspection)


def _dump(
    outputs: Outputs, documents: Sequence[Mapping[str, Any]], inspection: Inspection
) -> Path | None:
    """The bundle; None, and a line, where it could not be written."""
    of = f"{outputs.job.replace(' ', '-')}-" if outputs.job else ""
    path = outputs.options.out / f"hang-{of}{time.strftime('%Y%m%dT%H%M%S')}.tar.gz"
    try:
        write_bundle(path, documents, inspection)
        outputs.say(f"the evidence is in {path}")
    except (OSError, UserError) as problem:  # a full disk must not keep a hung job alive
        outputs.say(f"the evidence could not be written: {problem}")
        return None
    return path
