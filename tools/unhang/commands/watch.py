"""`unhang watch`: watches a running job, and when it makes no progress looks at it as `unhang inspect` does and says why."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from unhang.base.errors import UserError
from unhang.base.secrets_in_text import masked_document
from unhang.base.text import visible
from unhang.commands.common_options import add_examples
from unhang.commands.hooks import call_in_a_session, check_hooks, send
from unhang.jobs.inspect.bundle import write_bundle
from unhang.jobs.inspect.rendering import render_inspection
from unhang.jobs.inspect.verdict import inspection_of
from unhang.jobs.watch.answers import is_hang, named_in
from unhang.jobs.watch.detector import Event, detect
from unhang.jobs.watch.gpu_table import with_table
from unhang.jobs.watch.live import end_job, is_running, live_samples
from unhang.jobs.watch.prepared import prepared_environment
from unhang_node.command import load_nvidia_ml_py
from unhang_node.job.look import look

TERMINATED = 86
SECOND_LOOK_S = 10.0
EXAMPLES = """\
  unhang watch -- torchrun --nproc-per-node 8 train.py      start the job and watch it
  unhang watch --pid 4711                                   a job that runs
  unhang watch --on-hang terminate -- torchrun train.py     end a job that hangs, with exit code 86, so that its launcher starts it again"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options: which job, how patient, and what to do when it hangs."""
    parser.add_argument("command", nargs="*", metavar="-- COMMAND", help="the job to start; torch's flight recorder is on in it")
    parser.add_argument("--no-recorder", action="store_true", help="set no variable for the job that is started")
    parser.add_argument("--pid", type=int, metavar="PID", help="a job that runs: its launcher, or one of its ranks")
    parser.add_argument("--no-progress", type=float, default=60.0, metavar="S", help="seconds without progress until it is looked at (default 60)")
    parser.add_argument("--every", type=float, default=2.0, metavar="S", help="seconds between two samples (default 2)")
    actions = "when it hangs: report (default), dump (also write the evidence to --out), terminate (also end the job after two looks that agree; exit code 86)"
    parser.add_argument("--on-hang", choices=("report", "dump", "terminate"), default="report", help=actions)
    parser.add_argument("--grace", type=float, default=30.0, metavar="S", help="seconds between SIGTERM and SIGKILL (default 30)")
    parser.add_argument("--out", type=Path, default=Path(), metavar="FOLDER", help="folder of the evidence (default: here)")
    parser.add_argument("--py-spy", metavar="PATH", help="py-spy, where it is not on PATH")
    told = "as JSON (unhang/inspection/1), once for each verdict"
    parser.add_argument("--webhook", action="append", default=[], metavar="URL", help=f"POST a hang to this URL {told}; @FILE reads the URL from a file")
    parser.add_argument("--hook", action="append", default=[], metavar="COMMAND", help=f"run this program (no shell) with a hang on standard input {told}")
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """The job's own exit code; 0 for a job of --pid that ended; 86 for one that was ended here."""
    if bool(arguments.command) == bool(arguments.pid):
        raise UserError("expected a command behind -- or --pid, found both or none; see unhang watch --help")
    if arguments.no_progress < 2 * arguments.every or arguments.every < 0.2:
        raise UserError(f"expected --no-progress of at least two samples, found {arguments.no_progress:g} s and one sample each {arguments.every:g} s")
    if not arguments.out.is_dir():
        raise UserError(f"--out: expected a folder, found none at {arguments.out}")
    check_hooks(arguments)
    if not arguments.command:
        if not is_running(arguments.pid):
            raise UserError(f"--pid: no process {arguments.pid} on this machine: it has ended")
        return _watched(arguments.pid, arguments, is_ours=False) or 0
    with _folder_of_dumps() as folder:
        job = _start(arguments.command, {} if arguments.no_recorder else prepared_environment(arguments.command, os.environ, folder))
        try:
            if code := _watched(job.pid, arguments, is_ours=True):
                return code
        except KeyboardInterrupt:
            pass  # the job got it too, and ends as it does without a watcher
        return job.wait()


def _watched(pid: int, arguments: argparse.Namespace, is_ours: bool) -> int | None:
    """Watches until the process ends; TERMINATED if the job was ended here. is_ours: the job writes to this terminal."""
    notified: list[set[tuple[Any, Any, Any]]] = []
    with _table_of(not is_ours) as show:
        for event in detect(show(_noted(live_samples(pid, arguments.every))), arguments.no_progress):
            if _answer(event, pid, arguments, notified):
                end_job(pid, arguments.grace)
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
def _table_of(is_free: bool) -> Iterator[Callable[[Iterable[Mapping[str, Any]]], Iterable[Mapping[str, Any]]]]:
    """What shows samples as a table while they pass, on a terminal that no output of the job is written to."""
    if not is_free or not sys.stderr.isatty():
        yield lambda lines: lines
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False) as live:
        yield lambda lines: with_table(lines, lambda table: live.update(table, refresh=True))


def _start(command: list[str], added: Mapping[str, str]) -> subprocess.Popen[bytes]:
    if added:
        _say(f"set for the job: {' '.join(f'{name}={shlex.quote(value)}' for name, value in added.items())}")
    try:
        return subprocess.Popen(command, env={**os.environ, **added})
    except OSError as problem:
        raise UserError(f"{command[0]}: {problem.strerror}") from None


def _say(text: str) -> None:
    sys.stderr.write(f"unhang watch, {time.strftime('%H:%M:%S')}: {text}\n")
    sys.stderr.flush()


def _noted(lines: Any) -> Any:
    """The samples, with a word about what they show first."""
    for line in lines:
        if "schema" in line:
            _say(f"{len(line['ranks'])} ranks on {visible(line['host'])}, a sample each {line['every_s']:g} s")
        elif "silent" in line:
            _say("the sampler got no answer from the driver; it goes on without it. Does nvidia-smi answer?")
        yield line


def _answer(event: Event, pid: int, arguments: argparse.Namespace, notified: list[set[tuple[Any, Any, Any]]]) -> bool:
    """Looks and reports; whether the job is to be ended, which takes two looks that agree. notified: what the last notification named; changed here."""
    _say(f"{event.why}; looking at the job")
    document, found = _looked_at(pid, arguments)
    if not is_hang(event, found):
        notified.clear()
        return False
    if named_in(found) not in notified:
        notified[:] = [named_in(found)]
        for line in send(masked_document(found), arguments, call_in_a_session):
            _say(line)
    if arguments.on_hang == "report":
        return False
    _dump(arguments.out, document, found)
    if arguments.on_hang != "terminate":
        return False
    _say(f"a second look in {SECOND_LOOK_S:g} s, before the job is ended")
    time.sleep(SECOND_LOOK_S)
    _, again = _looked_at(pid, arguments)
    if is_hang(event, again) and named_in(found) == named_in(again):
        return True
    _say("the two looks do not agree: the job is left alone")
    return False


def _looked_at(pid: int, arguments: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """(evidence, verdict), which is printed."""
    try:
        document = look({"pids": [pid], "py_spy": arguments.py_spy}, load_nvidia_ml_py)
    except ValueError as problem:
        raise UserError(str(problem)) from None
    found = inspection_of([document])
    sys.stderr.write(render_inspection(found))
    sys.stderr.flush()
    return document, found


def _dump(folder: Path, document: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    path = folder / f"hang-{time.strftime('%Y%m%dT%H%M%S')}.tar.gz"
    try:
        write_bundle(path, [document], found)
        _say(f"the evidence is in {path}")
    except (OSError, UserError) as problem:  # a full disk must not keep a hung job alive
        _say(f"the evidence could not be written: {problem}")
