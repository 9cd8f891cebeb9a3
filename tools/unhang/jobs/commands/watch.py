"""`unhang watch`: watches a running job, and when it makes no progress looks at it as `unhang
inspect` does and says why."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unhang.core.commands.common_options import add_examples, add_verbose
from unhang.core.commands.in_place import Screen
from unhang.core.errors import UserError
from unhang.core.secrets_in_text import masked_document
from unhang.core.text import counted, visible
from unhang.jobs.commands.watch_outputs import Outputs, add_outputs, outputs_of
from unhang.jobs.inspect.answer import verdict_of
from unhang.jobs.inspect.bundle import write_bundle
from unhang.jobs.inspect.rendering import render_inspection
from unhang.jobs.inspect.verdict import inspection_of
from unhang.jobs.inspect.ways import arguments_of, check_number, slurm_documents
from unhang.jobs.watch.alerts import Alerts
from unhang.jobs.watch.answers import agreeing, is_hang, named_in
from unhang.jobs.watch.detector import Event, Tick, detect, with_moments
from unhang.jobs.watch.live import end_job, is_running, live_samples, samples_here
from unhang.jobs.watch.of_slurm import cancel, has_ended, how_it_ended, slurm_samples
from unhang.jobs.watch.prepared import prepared_environment
from unhang.jobs.watch.record import (
    FAILED,
    UNSEEN,
    WELL,
    Record,
    keep,
    read_records,
    record_file,
    render_sum,
    summed,
)
from unhang.jobs.watch.signals import JobSignals, job_signals
from unhang_node.base.program import load_nvidia_ml_py
from unhang_node.job.command import process_number
from unhang_node.job.look import look

TERMINATED = 86
LEAST_EVERY_S = 0.2
SECOND_LOOK_S = 10.0
EXAMPLES = """\
  unhang watch -- torchrun --nproc-per-node 8 train.py      start the job and watch it
  unhang watch --pid 4711                                   a job that runs
  unhang watch --slurm-job 1234                             all nodes of a job, from a login node, as its owner
  unhang watch --on-hang terminate -- torchrun train.py     in shadow: says when it would have ended the job
  unhang watch --record                                     what became of the verdicts so far: right, wrong, false alarms
  unhang watch --on-hang terminate --act -- torchrun train.py   end a job that hangs, with exit code 86, so that its launcher starts it again"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "command",
        nargs="*",
        metavar="-- COMMAND",
        help="the job to start; torch's flight recorder is on in it",
    )
    parser.add_argument(
        "--no-recorder", action="store_true", help="set no variable for the job that is started"
    )
    parser.add_argument(
        "--pid",
        type=process_number,
        metavar="PID",
        help="a job that runs: its launcher, or one of its ranks",
    )
    parser.add_argument(
        "--slurm-job",
        metavar="ID",
        help="a job of Slurm that runs: samples of all its nodes, by a step beside its own",
    )
    parser.add_argument(
        "--here",
        action="store_true",
        help="with --slurm-job: only its ranks on this node, without srun; for a prolog, as root",
    )
    parser.add_argument(
        "--no-progress",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds without progress until it is looked at (default 60)",
    )
    parser.add_argument(
        "--every",
        type=float,
        default=2.0,
        metavar="S",
        help="seconds between two samples (default 2)",
    )
    actions = (
        "when it hangs: report (default), dump (also write the evidence to --out), terminate (say"
        " that it would be ended, after two looks, each by two sources; with --act end it)"
    )
    parser.add_argument(
        "--on-hang", choices=("report", "dump", "terminate"), default="report", help=actions
    )
    parser.add_argument(
        "--act",
        action="store_true",
        help="with --on-hang terminate: end the job, with exit code 86; see --record first",
    )
    parser.add_argument(
        "--record",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="watch nothing: what became of earlier verdicts (default: the user's own record)",
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds between SIGTERM and SIGKILL (default 30; for --slurm-job Slurm's KillWait)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="folder of the evidence (default: here)",
    )
    parser.add_argument("--py-spy", metavar="PATH", help="py-spy, where it is not on PATH")
    add_outputs(parser)
    add_verbose(parser)
    add_examples(parser, EXAMPLES)


@dataclass(frozen=True)
class Job:
    """What is watched. is_ours: it writes to this terminal, or its nodes' GPUs fit into no table;
    has_ended: asked where none of its ranks is left."""

    samples: Iterable[Mapping[str, Any]]
    look: Callable[[], Sequence[dict[str, Any]]]
    end: Callable[[], None]
    is_ours: bool
    has_ended: Callable[[], bool] | None = None


def run(arguments: argparse.Namespace) -> int:
    """The job's own exit code, 128 and the number of a signal that ended it; 0 for a job of --pid
    or --slurm-job that ended; 86 for one that was ended here."""
    if arguments.record is not None:
        return _show_record(arguments)
    if sum(map(bool, (arguments.command, arguments.pid, arguments.slurm_job))) != 1:
        raise UserError(
            "expected a command behind --, or --pid, or --slurm-job, found several or none; see"
            " unhang watch --help"
        )
    if not LEAST_EVERY_S <= arguments.every < math.inf:
        raise UserError(
            f"--every: expected seconds, {LEAST_EVERY_S:g} or more, found {arguments.every:g}"
        )
    if not 0 <= arguments.grace < math.inf:
        raise UserError(f"--grace: expected seconds, 0 or more, found {arguments.grace:g}")
    if not arguments.no_progress >= 2 * arguments.every:
        raise UserError(
            f"expected --no-progress of at least two samples, found {arguments.no_progress:g} s and"
            f" one sample each {arguments.every:g} s"
        )
    if arguments.act and arguments.on_hang != "terminate":
        raise UserError("--act: expected --on-hang terminate beside it, which it lets act")
    if arguments.here and not arguments.slurm_job:
        raise UserError(
            "--here: expected --slurm-job ID beside it; a command and --pid are watched on this"
            " node anyway"
        )
    if not arguments.out.is_dir():
        raise UserError(f"--out: expected a folder, found none at {arguments.out}")
    outputs = outputs_of(arguments, _say)
    code = _run_and_watch(arguments, outputs)
    if outputs.ended:  # last, below what the launcher prints when it is ended
        _say(outputs.ended)
    return code


def _run_and_watch(arguments: argparse.Namespace, outputs: Outputs) -> int:
    if arguments.slurm_job:
        number = arguments.slurm_job
        job = _of_slurm_here(arguments) if arguments.here else _of_slurm(arguments)
        with (
            _stopped_by_sigterm(),
            _recorded(f"slurm {number}", lambda: how_it_ended(number)) as to,
        ):
            return _watched(job, arguments, outputs, to) or 0
    if not arguments.command:
        if not is_running(arguments.pid):
            raise UserError(f"--pid: no process {arguments.pid} on this machine: it has ended")
        job = _of_this_machine(arguments.pid, arguments, is_ours=False)
        # its exit code is for its parent alone
        with _stopped_by_sigterm(), _recorded(f"pid {arguments.pid}", lambda: UNSEEN) as to:
            return _watched(job, arguments, outputs, to) or 0
    return _started_and_watched(arguments, outputs)


def _started_and_watched(arguments: argparse.Namespace, outputs: Outputs) -> int:
    how = UNSEEN
    with (
        _folder_of_dumps() as folder,
        job_signals() as signals,
        _recorded(f"command {arguments.command[0]}", lambda: how) as to,
    ):
        added = (
            {}
            if arguments.no_recorder
            else prepared_environment(arguments.command, os.environ, folder)
        )
        job = _start(signals, arguments.command, added)
        with signals.watching():
            watched = _of_this_machine(job.pid, arguments, is_ours=True)
            if code := _watched(watched, arguments, outputs, to, signals):
                return code
        code = job.wait()
        how = FAILED if code else WELL
        return code if code >= 0 else 128 - code  # ended by a signal: as a shell reports it


def _show_record(arguments: argparse.Namespace) -> int:
    own = record_file(os.environ)
    paths = arguments.record or ([own] if own and own.exists() else [])
    if not paths:
        raise UserError(
            "--record: expected a record of earlier watches, found none; each watch keeps its own"
        )
    rows, strange = read_records(paths)
    sys.stdout.write(render_sum(summed(rows), strange))
    return 0


@contextlib.contextmanager
def _recorded(name: str, how_ended: Callable[[], str]) -> Iterator[Record]:
    """The record of one watch, which is kept however the watch ends."""
    record = Record(name, socket.gethostname())
    try:
        yield record
    finally:
        record.ended(how_ended())
        if problem := keep(record, os.environ):
            _say(problem)


@contextlib.contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """As a unit is stopped by systemd: the record of the watch is kept."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _of_this_machine(pid: int, arguments: argparse.Namespace, is_ours: bool) -> Job:
    def look_here() -> list[dict[str, Any]]:
        return _look_here({"pids": [pid]}, arguments)

    return Job(
        live_samples(pid, arguments.every),
        look_here,
        lambda: end_job(pid, arguments.grace),
        is_ours,
    )


def _look_here(ranks: Mapping[str, Any], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    try:
        return [look({**ranks, "py_spy": arguments.py_spy}, load_nvidia_ml_py)]
    except ValueError as problem:
        raise UserError(str(problem)) from None


def _of_slurm_here(arguments: argparse.Namespace) -> Job:
    """The ranks of a job on this node. Between two steps it has none: only Slurm knows whether it
    is over."""
    job = arguments.slurm_job
    check_number(job)
    ranks = {"slurm_job": job}
    samples = samples_here(ranks, lambda: not has_ended(job), arguments.every)
    return Job(
        samples,
        lambda: _look_here(ranks, arguments),
        lambda: cancel(job),
        is_ours=True,
        has_ended=lambda: has_ended(job),
    )


def _of_slurm(arguments: argparse.Namespace) -> Job:
    job = arguments.slurm_job
    wanted = arguments_of(
        {
            "without": [],
            "container": None,
            "gap_s": None,
            "slow": False,
            "py_spy": arguments.py_spy,
            "kernel_log": None,
        }
    )
    return Job(
        slurm_samples(job, arguments.every),
        lambda: slurm_documents(job, wanted),
        lambda: cancel(job),
        is_ours=True,
    )


def _watched(
    job: Job,
    arguments: argparse.Namespace,
    outputs: Outputs,
    to: Record,
    signals: JobSignals | None = None,
) -> int | None:
    """Watches until the job ends; TERMINATED if it was ended here, which no signal interrupts."""
    with _table_of(not job.is_ours) as show:
        alerts = Alerts()

        def update(tick: Tick, since_s: float) -> None:
            outputs.sampled(tick, since_s)
            to.sampled(tick.t, since_s)
            for line in alerts.of(tick):
                _say(line)
            show(tick, since_s)

        for event in detect(with_moments(_noted(job.samples), update), arguments.no_progress):
            if job.has_ended and not outputs.ranks_left():
                if job.has_ended():
                    return None
            elif _answer(event, job, arguments, outputs, to):
                if signals:
                    signals.ends_watch = False
                job.end()
                return TERMINATED
    return None


@contextlib.contextmanager
def _folder_of_dumps() -> Iterator[Path]:
    """A private folder, which stays if torch wrote a dump into it."""
    folder = Path(tempfile.mkdtemp(prefix="unhang-watch-"))
    try:
        yield folder
    finally:
        if any(folder.iterdir()):
            _say(f"the flight recorder's dumps are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _table_of(is_free: bool) -> Iterator[Callable[[Tick, float], None]]:
    """What shows a moment as a table, on a terminal that no output of the job is written to."""
    if not is_free or not sys.stderr.isatty():
        yield lambda _tick, _since_s: None
        return
    from unhang.core.table import printed
    from unhang.core.terminal import terminal_shape

    # 8 MB, which a watcher without a terminal does not need
    from unhang.jobs.watch.gpu_table import gpu_table

    screen = Screen(sys.stderr)

    def draw(tick: Tick, since_s: float) -> None:
        screen.draw(
            printed(
                [gpu_table(tick, since_s)], *terminal_shape(screen.target, os.environ)
            ).splitlines()
        )

    with contextlib.redirect_stderr(screen):
        yield draw


def _start(
    signals: JobSignals, command: list[str], added: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    if added:
        _say(
            "set for the job:"
            f" {' '.join(f'{name}={shlex.quote(value)}' for name, value in added.items())}"
        )
    try:
        return signals.start(command, {**os.environ, **added})
    except OSError as problem:
        raise UserError(f"{command[0]}: {problem.strerror}") from None


def _say(text: str) -> None:
    sys.stderr.write(f"unhang watch, {time.strftime('%H:%M:%S')}: {text}\n")
    sys.stderr.flush()


def _noted(lines: Any) -> Any:
    """The samples, with a word about what they show first."""
    for line in lines:
        if "schema" in line:
            _say(
                f"{counted(len(line['ranks']), 'rank')} on {visible(line['host'])}, a sample each"
                f" {line['every_s']:g} s"
            )
        elif "silent" in line:
            _say(
                "the sampler got no answer from the driver; it goes on without it. Does nvidia-smi"
                " answer?"
            )
        yield line


def _answer(
    event: Event, job: Job, arguments: argparse.Namespace, outputs: Outputs, to: Record
) -> bool:
    """Whether the job is to be ended. A look that fails (the job ended meanwhile, Slurm did not
    answer) ends no watch."""
    _say(f"{event.why}; looking at the job")
    try:
        return _looks_hung(event, job, arguments, outputs, to)
    except UserError as problem:
        _say(f"the look failed: {visible(str(problem), 400)}")
        return False


def _looks_hung(
    event: Event, job: Job, arguments: argparse.Namespace, outputs: Outputs, to: Record
) -> bool:
    """Looks and reports; whether the job is to be ended, which takes two looks that agree and
    --act. Raises UserError."""
    documents, inspection = _looked_at(job, arguments.verbose)
    if not is_hang(event, inspection):
        outputs.looked(inspection, None)
        return False
    full = _dump(arguments.out, documents, inspection) if arguments.on_hang != "report" else None
    if headline := outputs.looked(inspection, named_in(inspection), full):
        to.hung(headline)
    if arguments.on_hang != "terminate":
        return False
    _say(f"a second look in {SECOND_LOOK_S:g} s, before a job is ended")
    time.sleep(SECOND_LOOK_S)
    _, again = _looked_at(job, arguments.verbose)
    if not is_hang(event, again) or named_in(inspection) != named_in(again):
        _say("the two looks do not agree: the job is left alone")
        return False
    sources = [name for name in agreeing(event, inspection) if name in agreeing(event, again)]
    if len(sources) < 2:
        shown = [
            f"it {what} by {', '.join(again['sources'][what]) or 'none'}"
            for what in ("stands", "works")
        ]
        _say(f"no two sources agree ({'; '.join(shown)}): the job is left alone")
        return False
    is_news = to.would_end(arguments.act)
    if not arguments.act:
        if is_news:
            _say(
                f"in shadow: {', '.join(sources)} agree that it stands, and the job would have been"
                " ended; unhang watch --record shows how often that was right, --act ends a job"
            )
        return False
    _say(f"{', '.join(sources)} agree that it stands: the job is ended")
    where = f"is in {full.resolve()}" if full else "could not be written"
    why = verdict_of(masked_document(again))
    outputs.ended = f"ended {_named(arguments)}: {why}; the evidence {where}"
    return True


def _named(arguments: argparse.Namespace) -> str:
    """The job as it was given."""
    if arguments.slurm_job:
        return f"the job {visible(str(arguments.slurm_job), 40)} of Slurm"
    if not arguments.command:
        return f"process {arguments.pid}"
    return visible(shlex.join(arguments.command), 80)


def _looked_at(job: Job, verbose: bool) -> tuple[Sequence[dict[str, Any]], dict[str, Any]]:
    """(evidence, verdict), which is printed."""
    documents = job.look()
    inspection = inspection_of(documents)
    sys.stderr.write(render_inspection(masked_document(inspection), verbose=verbose))
    sys.stderr.flush()
    return documents, inspection


def _dump(
    folder: Path, documents: Sequence[Mapping[str, Any]], inspection: Mapping[str, Any]
) -> Path | None:
    """The bundle; None, and a line, where it could not be written."""
    path = folder / f"hang-{time.strftime('%Y%m%dT%H%M%S')}.tar.gz"
    try:
        write_bundle(path, documents, inspection)
        _say(f"the evidence is in {path}")
    except (OSError, UserError) as problem:  # a full disk must not keep a hung job alive
        _say(f"the evidence could not be written: {problem}")
        return None
    return path
