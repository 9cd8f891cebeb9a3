"""`unhang watch`: watches a running job, and when it makes no progress looks at it as `unhang
inspect` does and says why."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from unhang.core.commands.common_options import (
    add_examples,
    add_flag,
    add_value,
    add_verbose,
)
from unhang.core.errors import UserError
from unhang.core.text import visible
from unhang.jobs.commands.watch_all import watch_all
from unhang.jobs.commands.watch_one import Job, say, stopped_by_signals, watched
from unhang.jobs.commands.watch_outputs import Outputs, WatchOptions, add_outputs, outputs_of
from unhang.jobs.inspect.here import LookHere
from unhang.jobs.inspect.ways import arguments_of, slurm_documents
from unhang.jobs.watch.live import end_job, is_running, live_samples
from unhang.jobs.watch.of_slurm import cancel, how_it_ended, slurm_samples
from unhang.jobs.watch.own_words import own_words
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
from unhang_node.job.look_options import process_number

LEAST_EVERY_S = 0.2
EXAMPLES = """\
  unhang watch -- torchrun --nproc-per-node 8 train.py      start the job and watch it
  unhang watch --pid 4711                                   a job that runs
  unhang watch --all                                        all jobs of this machine, as they come
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
    add_flag(parser, "--no-recorder", "set no variable for the job that is started")
    add_value(
        parser, "--pid", "PID", "a job that runs: its launcher, or one of its ranks", process_number
    )
    add_value(
        parser,
        "--slurm-job",
        "ID",
        "a job of Slurm that runs: samples of all its nodes, by a step beside its own",
    )
    add_flag(
        parser,
        "--all",
        "all jobs of this machine as they come: root's all, a user's own; those of Slurm with"
        " --comment=unhang:off and those with UNHANG_WATCH=off in their environment are left out",
    )
    add_flag(
        parser,
        "--job-comment",
        "with --all, as root: write a verdict of a hang into the AdminComment of Slurm's job",
    )
    add_flag(
        parser,
        "--slow",
        "each ten minutes of progress also look which rank slows the job, as unhang inspect --slow;"
        " it is reported when two looks in a row name it, which is no hang",
    )
    parser.add_argument(
        "--pods",
        choices=("all", "labelled"),
        help="with --all, in a pod of Kubernetes: write verdicts as Events, and leave out pods with"
        " the label unhang/watch=off (labelled: all but those with unhang/watch=on), their own or"
        " their namespace's",
    )
    add_value(
        parser,
        "--no-progress",
        "S",
        "seconds without progress until it is looked at (default 60)",
        float,
        60.0,
    )
    add_value(parser, "--every", "S", "seconds between two samples (default 2)", float, 2.0)
    actions = (
        "when it hangs: report (default), dump (also write the evidence to --out), terminate (say"
        " that it would be ended, after two looks, each by two sources; with --act end it)"
    )
    parser.add_argument(
        "--on-hang", choices=("report", "dump", "terminate"), default="report", help=actions
    )
    add_flag(
        parser,
        "--act",
        "with --on-hang terminate: end the job, with exit code 86; see --record first; with"
        " --all: cancel a hung job of Slurm whose user wants it by --comment=unhang:terminate",
    )
    parser.add_argument(
        "--record",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="watch nothing: what became of earlier verdicts (default: the user's own record)",
    )
    add_value(
        parser,
        "--grace",
        "S",
        "seconds between SIGTERM and SIGKILL (default 30; for --slurm-job Slurm's KillWait)",
        float,
        30.0,
    )
    add_value(parser, "--out", "FOLDER", "folder of the evidence (default: here)", Path, Path())
    add_value(parser, "--py-spy", "PATH", "py-spy, where it is not on PATH")
    add_outputs(parser)
    add_verbose(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """The job's own exit code, 128 and the number of a signal that ended it; 0 for a job of --pid
    or --slurm-job that ended; 86 for one that was ended here."""
    if arguments.record is not None:
        return _show_record(arguments.record)
    given = (arguments.command, arguments.pid, arguments.slurm_job, arguments.all)
    if sum(map(bool, given)) != 1:
        raise UserError(
            "give exactly one of a command behind --, --pid, --slurm-job and --all, not several or"
            " none; see unhang watch --help"
        )
    if not LEAST_EVERY_S <= arguments.every < math.inf:
        raise UserError(
            f"--every takes seconds, {LEAST_EVERY_S:g} or more, not {arguments.every:g}"
        )
    if not 0 <= arguments.grace < math.inf:
        raise UserError(f"--grace takes seconds, 0 or more, not {arguments.grace:g}")
    if not arguments.no_progress >= 2 * arguments.every:
        raise UserError(
            f"--no-progress takes the time of at least two samples, not {arguments.no_progress:g} s"
            f" with one sample each {arguments.every:g} s"
        )
    if arguments.all and arguments.on_hang == "terminate":
        raise UserError(
            "--all ends a job only where its user wants it, by --comment=unhang:terminate; leave"
            " out --on-hang terminate"
        )
    for option, given_one in (("job-comment", arguments.job_comment), ("pods", arguments.pods)):
        if given_one and not arguments.all:
            raise UserError(f"--{option} needs --all")
    if arguments.act and not arguments.all and arguments.on_hang != "terminate":
        raise UserError("--act needs --on-hang terminate, which it lets act")
    if not arguments.out.is_dir():
        raise UserError(f"--out: there is no folder at {arguments.out}")
    outputs = outputs_of(WatchOptions.of(arguments), say)
    with own_words() as outputs.words:
        if arguments.all:
            return watch_all(outputs)
        code = _run_and_watch(outputs)
        if outputs.ended:  # last, below what the launcher prints when it is ended
            say(outputs.ended)
    return code


def _run_and_watch(outputs: Outputs) -> int:
    options = outputs.options
    if number := options.slurm_job:
        with (
            stopped_by_signals(),
            _recorded(f"slurm {number}", lambda: how_it_ended(number)) as to,
        ):
            return watched(_of_slurm(number, options), outputs, to) or 0
    if pid := options.pid:
        if not is_running(pid):
            raise UserError(f"--pid: no process {pid} on this machine: it has ended")
        job = job_of(pid, options, is_ours=False)
        # its exit code is for its parent alone
        with stopped_by_signals(), _recorded(f"pid {pid}", lambda: UNSEEN) as to:
            return watched(job, outputs, to) or 0
    return _started_and_watched(outputs)


def _started_and_watched(outputs: Outputs) -> int:
    options = outputs.options
    how = UNSEEN
    with (
        _folder_of_dumps() as folder,
        job_signals() as signals,
        _recorded(f"command {options.command[0]}", lambda: how) as to,
    ):
        added = (
            {} if options.no_recorder else prepared_environment(options.command, os.environ, folder)
        )
        job = _start(signals, options.command, added)
        with signals.watching():
            of = job_of(job.pid, options, is_ours=True)
            if code := watched(of, outputs, to, signals):
                return code
        code = job.wait()
        how = FAILED if code else WELL
        return code if code >= 0 else 128 - code  # ended by a signal: as a shell reports it


def _show_record(named: Sequence[Path]) -> int:
    own = record_file(os.environ)
    paths = named or ([own] if own and own.exists() else [])
    if not paths:
        raise UserError("--record: there is no record of earlier watches; each watch keeps its own")
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
            say(problem)


def job_of(pid: int, options: WatchOptions, is_ours: bool) -> Job:
    """The job of a process of this machine."""
    own = {"py_spy": options.py_spy}

    def look_here(asked: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [LookHere().evidence(["--pid", str(pid), *arguments_of({**own, **asked})])]

    return Job(
        live_samples(pid, options.every),
        look_here,
        lambda: end_job(pid, options.grace),
        is_ours,
        name=visible(shlex.join(options.command), 80) if is_ours else f"process {pid}",
    )


def _of_slurm(job: str, options: WatchOptions) -> Job:
    own = {"py_spy": options.py_spy}
    return Job(
        slurm_samples(job, options.every),
        lambda asked: slurm_documents(job, arguments_of({**own, **asked})),
        lambda: cancel(job),
        is_ours=True,
        name=f"the job {visible(job, 40)} of Slurm",
    )


@contextlib.contextmanager
def _folder_of_dumps() -> Iterator[Path]:
    """A private folder, which stays if torch wrote a dump into it."""
    folder = Path(tempfile.mkdtemp(prefix="unhang-watch-"))
    try:
        yield folder
    finally:
        if any(folder.iterdir()):
            say(f"the flight recorder's dumps are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _start(
    signals: JobSignals, command: list[str], added: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    if added:
        say(
            "set for the job:"
            f" {' '.join(f'{name}={shlex.quote(value)}' for name, value in added.items())}"
        )
    try:
        return signals.start(command, {**os.environ, **added})
    except OSError as problem:
        raise UserError(f"{command[0]}: {problem.strerror}") from None
