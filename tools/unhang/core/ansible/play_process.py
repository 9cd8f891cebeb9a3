"""Runs ansible-playbook as a child: keeps its output, and leaves no process behind, whichever of
the two ends first."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from unhang.core.child_processes import PR_SET_PDEATHSIG

# seconds for Ansible to end by itself after Ctrl-C, which a terminal sends to it too
PATIENCE_S = 5.0
ENDING_S = 30.0  # seconds for Ansible to close the run after the request to end
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Played:
    """output: all that it printed; code: Ansible's exit code, negative for the signal that
    ended it; stopped: whether a signal stopped this process."""

    output: str
    code: int
    stopped: bool = False


def play(
    command: Sequence[str],
    environment: Mapping[str, str],
    on_line: Callable[[str], None] | None = None,
) -> Played:
    """Standard output is reserved for the report. on_line: called for each line as it comes."""
    adopt_orphans()
    held = _Held(on_line)
    with (
        stopped_once(),
        subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0
            if signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            else None,  # a process that Ctrl-C does not reach; the same holds for its child
            preexec_fn=_ends_with(os.getpid()),  # noqa: PLW1509 -- this program has one thread
        ) as child,
    ):
        stopped = False
        try:
            _relay(child, held, None)
        except _Terminated:
            stopped = True
            _end(child, held, 0.0)
        except KeyboardInterrupt:
            stopped = True
            _end(child, held, PATIENCE_S)
        code = child.wait()
        if stopped or code < 0:
            end_orphans()
    return Played(held.decode("utf-8", "replace"), code, stopped)


def _ends_with(parent: int) -> Callable[[], None]:
    """What makes Ansible end when this process is killed, by the signal on which it closes the run:
    no task is interrupted on a node, and none follows."""
    # loaded here, for between fork and exec as little as possible is done
    libc = ctypes.CDLL(None, use_errno=True)

    def tie() -> None:
        # a script's background job ignores it, and Ansible would do so too
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # of a closed terminal: Ansible would end without closing the run, and this process ends it
        # properly
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with contextlib.suppress(AttributeError):
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)  # it was killed before the tie was there

    return tie


class _Held(bytearray):
    """What Ansible printed; each whole line is passed on once."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        super().__init__()
        self.on_line = on_line
        self.passed_on = 0

    def add(self, chunk: bytes) -> None:
        self.extend(chunk)
        while self.on_line and (end := self.find(b"\n", self.passed_on)) >= 0:
            self.on_line(self[self.passed_on : end].decode("utf-8", "replace"))
            self.passed_on = end + 1


def adopt_orphans() -> None:
    """Makes orphans of child processes children of this process, so that they can be ended; does
    nothing on systems without this feature."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans(spared: Collection[int] = ()) -> None:
    """Ends the processes that a program which has ended left behind, such as workers of Ansible,
    which would continue to write into the run. spared: other children of this process."""
    deadline = time.monotonic() + PATIENCE_S
    while (children := set(child_processes()) - set(spared)) and time.monotonic() < deadline:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)  # one that is stuck in the kernel is not waited for
        time.sleep(0.01)


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which a terminal does not send to Ansible as well, or SIGHUP of a closed terminal,
    which Ansible ignores."""


@contextlib.contextmanager
def stopped_once() -> Iterator[None]:
    """The first Ctrl-C, SIGTERM or SIGHUP raises. Later ones are ignored, also after the play: what
    is left is short, and the line that says how to continue must not be lost to somebody who
    presses Ctrl-C twice."""
    is_stopped = False

    def stop(number: int, frame: object) -> None:
        nonlocal is_stopped
        if not is_stopped:
            is_stopped = True
            raise KeyboardInterrupt if number == signal.SIGINT else _Terminated

    taken = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, stop) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            # a handler in Python ends with the interpreter, before the process does
            signal.signal(number, signal.SIG_IGN if is_stopped else handler)


def _relay(child: subprocess.Popen[bytes], held: _Held, deadline: float | None) -> bool:
    """Until Ansible has ended, even where a worker that outlives it keeps the pipe open. False at
    the deadline."""
    assert child.stdout is not None
    while deadline is None or time.monotonic() < deadline:
        if select.select([child.stdout], [], [], 0.2)[0]:
            chunk = os.read(child.stdout.fileno(), 65536)
            if not chunk:
                return True
            held.add(chunk)
        elif child.poll() is not None:
            return True
    return False


def _end(child: subprocess.Popen[bytes], held: _Held, patience_s: float) -> None:
    """Ends Ansible with SIGINT, the only signal on which it closes the run."""
    if _relay(child, held, time.monotonic() + patience_s):
        return
    child.send_signal(signal.SIGINT)
    if not _relay(child, held, time.monotonic() + ENDING_S):
        child.kill()


def child_processes() -> Iterator[int]:
    me = os.getpid()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                if int((entry / "stat").read_text("latin-1").rpartition(")")[2].split()[1]) == me:
                    yield int(entry.name)
