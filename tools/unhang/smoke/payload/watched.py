"""Processes that an agent monitors: each in its own session, with a pipe for events, and ended
together with the agent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping


class Watched:
    """A process as its agent sees it. events: pipe that it writes events to; buffer: an incomplete
    line; output: its last lines; code: its exit code."""

    def __init__(self, process: subprocess.Popen[bytes], events: int) -> None:
        self.process, self.events = process, events
        self.code: int | None = None
        self.buffer = b""
        self.output: list[str] = []


def start_process(
    argv: list[str], environment: Mapping[str, str], begin: Callable[[], None]
) -> tuple[subprocess.Popen[bytes], int]:
    """(the process, the pipe of its events). argv: `--events` and the pipe's other end are added.
    begin: runs in the child before exec."""
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen(
            [*argv, "--events", str(writer)], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=[writer], start_new_session=True, preexec_fn=begin,
        )  # fmt: skip
    finally:
        os.close(writer)
    return process, reader


def listen_to(child: Watched, selector: selectors.BaseSelector) -> None:
    """Registers the pipes, so that the selector reports events and output of the processes."""
    assert child.process.stdout is not None
    for descriptor in (child.events, child.process.stdout.fileno()):
        os.set_blocking(descriptor, False)
    selector.register(child.events, selectors.EVENT_READ, child)
    selector.register(child.process.stdout, selectors.EVENT_READ, child)


def add_output(child: Watched, piece: bytes) -> None:
    """The last lines that a process printed."""
    child.output = (child.output + piece.decode("utf-8", "replace").splitlines())[-40:]


def reap(children: Iterable[Watched]) -> None:
    """Records the processes that have ended."""
    for child in children:
        if child.code is None and child.process.poll() is not None:
            child.code = child.process.returncode


def end_politely(ask: Callable[[int], None]) -> None:
    """Signals only request a stop from now on. The launcher's death ends no process, and orphans of
    children become children of this process."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: ask(number))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        # PR_SET_CHILD_SUBREAPER: orphans are ended with the other processes
        ctypes.CDLL(None).prctl(36, 1)
