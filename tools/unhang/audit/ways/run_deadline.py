"""The deadline of a whole run: what arrived by then counts, and the other nodes are listed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from unhang.core import project
from unhang.core.ansible import run_files
from unhang.core.ansible.answer import NodeAnswer
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.run.run_folder import as_typed, node_files, read_node
from unhang.core.text import counted

DEADLINE_S = 3600.0
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN_S = 1.0


def straggler(deadline_s: float, is_asked: bool) -> NodeAnswer:
    """The record of a node that the deadline cut."""
    return NodeAnswer(
        "timeout",
        message=(
            f"{'no answer' if is_asked else 'not asked'} by the deadline of the run,"
            f" {deadline_s:g} s"
        ),
    )


def report_cut(folder: Path, hosts: Sequence[str], deadline_s: float) -> None:
    """Names the nodes that the deadline cut, and how to read them."""
    if hosts:
        which = f"{counted(len(hosts), 'host')} cut: {shortened(fold_hosts(hosts), 120)}"
        then = f"{project.program_as_typed()} audit --continue {as_typed(folder)}"
        sys.stderr.write(
            f"unhang: the deadline of the run, {deadline_s:g} s, has passed; {which}; read them"
            f" with: {then}\n"
        )


@contextlib.contextmanager
def play_stopped_at(deadline_s: float) -> Iterator[Callable[[], bool]]:
    """Stops a play that is under way at the deadline, as SIGTERM to this program would. Yields what
    says whether it was stopped."""
    is_stopped = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal is_stopped
        if not callable(signal.getsignal(signal.SIGTERM)):  # no play runs at this moment
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
            return
        is_stopped = True
        os.kill(os.getpid(), signal.SIGTERM)

    handlers = {number: signal.getsignal(number) for number in STOPS}
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, deadline_s)
    try:
        yield lambda: is_stopped
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        for number, handler in handlers.items() if is_stopped else ():
            # a stopped play has them ignored, and a person may still stop the judging
            signal.signal(number, handler)


def close_at_deadline(folder: Path, deadline_s: float) -> list[str]:
    """Closes the run of a play that was stopped, and returns the hosts that it had not read."""
    run_files.close_for_another(folder)
    cut = []
    for path in node_files(folder):
        node = read_node(path)
        if node["status"] == "failed" and node["message"] in (
            run_files.NOT_ASKED,
            run_files.NOT_ANSWERED,
        ):
            answer = straggler(deadline_s, node["message"] == run_files.NOT_ANSWERED)
            run_files.write_node(
                folder, {**node, "status": answer.status, "message": answer.message}
            )
            cut.append(str(node["host"]))
    run_files.finish_run(folder)
    return cut
