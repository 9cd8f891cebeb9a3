"""Runs a program on the node: argv, an explicit environment, a deadline, and a kill of its process
group. No other module on the node starts programs.

The program gets a session of its own, so that its deadline also ends its children; a process that
left that session (a started service) continues. An output never takes more memory than its limit.
When the program has ended, a service that keeps its output open is not waited for.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from contextlib import suppress

from .named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": FOLDERS, "LC_ALL": "C", "HOME": "/"}
DEADLINE_S = 60.0
OUTPUT_LIMIT_BYTES = 16 * 1024 * 1024
DRAIN_S = 1.0  # for output that is still in the pipe when the program has ended
KILL_GRACE_S = 5.0
LOOK_EVERY_S = 0.1
CHROOT_DID_NOT_FIND, CHROOT_SAYS = 127, "failed to run command"
ERROR_CHARACTERS = 400


class ProcessResult(NamedTuple):
    """Result of a program. code: its exit code, negative for a signal that ended it; None if it was
    killed at its deadline or does not exist. stdout, stderr: text, with invalid UTF-8 replaced;
    with `merged` all output is in stdout. is_cut: more than the limit was printed, and only the end
    was kept."""

    argv: tuple[str, ...]
    code: int | None
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    is_missing: bool = False
    is_cut: bool = False

    @property
    def last_words(self) -> str:
        """The end of its output, standard error first, on one line; "" without output."""
        text = self.stderr if self.stderr.strip() else self.stdout
        return " ".join(text.split())[-ERROR_CHARACTERS:]


class ProgramFailed(ValueError):
    """A program ended with another code than 0; the text is one line: the program, its code and the
    end of its output."""

    def __init__(self, result: ProcessResult):
        super().__init__(
            f"{' '.join(result.argv)}: ended with {result.code}:"
            f" {result.last_words or 'it printed nothing'}"
        )
        self.result = result


def run_process(
    argv: Sequence[str],
    deadline_s: float = DEADLINE_S,
    rootfs: str = "/",
    stdin: str = "",
    variables: Mapping[str, str] | None = None,
    merged: bool = False,
    folder: str | None = None,
    limit_bytes: int = OUTPUT_LIMIT_BYTES,
) -> ProcessResult:
    """Runs a program and returns its result, also if it failed. Raises OSError only if the program
    cannot be started.

    rootfs: the tree that it runs in (chroot), "/" for this machine. variables: additions to
    ENVIRONMENT. folder: its working folder.
    limit_bytes: of each of stdout and stderr.
    """
    command = list(argv) if rootfs == "/" else ["chroot", rootfs, *argv]
    try:
        child = _start(command, bool(stdin), variables, merged, folder)
    except FileNotFoundError:
        if folder is not None and not os.path.isdir(folder):
            raise
        return ProcessResult(argv=tuple(argv), code=None, is_missing=True)
    captured = _Captured(child, stdin.encode("utf-8", "surrogateescape"), limit_bytes)
    ended = _capture(child, captured, deadline_s)
    stdout, stderr = captured.texts()
    is_missing = (
        rootfs != "/"
        and child.returncode == CHROOT_DID_NOT_FIND
        and CHROOT_SAYS in (stderr or stdout)
    )
    return ProcessResult(
        argv=tuple(argv),
        code=child.returncode if ended and not is_missing else None,
        stdout=stdout,
        stderr=stderr,
        timed_out=not ended,
        is_missing=is_missing,
        is_cut=captured.is_cut,
    )


def _start(
    command: list[str],
    has_stdin: bool,
    variables: Mapping[str, str] | None,
    merged: bool,
    folder: str | None,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, stdin=subprocess.PIPE if has_stdin else subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        env={**ENVIRONMENT, **(variables or {})}, cwd=folder, start_new_session=True,
    )  # fmt: skip


def _capture(child: subprocess.Popen[bytes], captured: _Captured, deadline_s: float) -> bool:
    """Reads the output until the program ends, and kills it at the deadline; True when it ended by
    itself."""
    ended = False
    try:
        ended = captured.read_until(time.monotonic() + deadline_s)
    finally:
        if not ended:
            _kill(child)
        captured.close()
    return ended


def start_apart(
    argv: Sequence[str], variables: Mapping[str, str] | None = None
) -> Callable[[], bool]:
    """Starts a program in its own session and never kills it; each call of the result returns
    whether it has ended. Its output is discarded.

    For a package manager on a node without systemd: it has to survive the deadline and the process
    that started it. Raises OSError.
    """
    nowhere = subprocess.DEVNULL
    child = subprocess.Popen(
        list(argv),
        stdin=nowhere,
        stdout=nowhere,
        stderr=nowhere,
        env={**ENVIRONMENT, **(variables or {})},
        start_new_session=True,
    )
    return lambda: child.poll() is not None


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kills a program and all processes in its session. A process that is stuck in the kernel is
    not waited for."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        child.wait(KILL_GRACE_S)


def output_of(
    argv: Sequence[str], deadline_s: float = DEADLINE_S, rootfs: str = "/", **options: object
) -> str:
    """Standard output of a program, with `merged` also standard error; the options are those of
    run_process.

    Raises ProgramFailed, FileNotFoundError (no such program), TimeoutError, OSError; ValueError if
    it printed more than its limit.
    """
    return demand_success(run_process(argv, deadline_s, rootfs, **options), deadline_s)  # type: ignore[arg-type]


def demand_success(result: ProcessResult, deadline_s: float = DEADLINE_S) -> str:
    """The standard output of a program that ended with 0. Raises as output_of does."""
    if result.is_missing:
        raise FileNotFoundError(2, "no such program on this node", result.argv[0])
    if result.timed_out:
        raise TimeoutError(110, f"no answer within {deadline_s:g} s", " ".join(result.argv))
    if result.code:
        raise ProgramFailed(result)
    if result.is_cut:
        raise ValueError(f"{' '.join(result.argv)} answered more than the limit")
    return result.stdout


class _Captured:
    """Writes a program's input and reads its outputs at the same time, so that none of them can
    block it."""

    def __init__(self, child: subprocess.Popen[bytes], text: bytes, limit_bytes: int):
        self.child = child
        self.unwritten = text
        self.limit_bytes = limit_bytes
        self.is_cut = False
        self.poll = select.poll()
        self.kept: dict[int, bytearray] = {}
        self.numbers = [
            stream.fileno() if stream else -1 for stream in (child.stdout, child.stderr)
        ]
        self.unread = {number for number in self.numbers if number >= 0}
        for number in self.unread:
            self.kept[number] = bytearray()
            self.poll.register(number, select.POLLIN)
        if child.stdin:
            os.set_blocking(child.stdin.fileno(), False)
            self.poll.register(child.stdin.fileno(), select.POLLOUT)

    def read_until(self, until: float) -> bool:
        """False when the deadline passed before the program ended."""
        while self.child.poll() is None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            if self.unread:
                self._step(min(left_s, LOOK_EVERY_S))
            else:  # it has closed its outputs and continues
                with suppress(subprocess.TimeoutExpired):
                    self.child.wait(left_s)
        drain_until = time.monotonic() + DRAIN_S
        while self.unread and time.monotonic() < drain_until and self._step(0):
            pass
        return True

    def close(self) -> None:
        """Closes this side of the pipes; a service may keep its own end open."""
        for stream in (self.child.stdin, self.child.stdout, self.child.stderr):
            if stream:
                with suppress(OSError):  # the program no longer reads its input
                    stream.close()

    def texts(self) -> list[str]:
        """Standard output and standard error; of one that was longer than the limit, its end."""
        return [
            bytes(self.kept.get(number, b"")[-self.limit_bytes :]).decode("utf-8", "replace")
            for number in self.numbers
        ]

    def _step(self, wait_s: float) -> bool:
        """Writes input and reads output that is ready. False when nothing was ready."""
        events = self.poll.poll(wait_s * 1000)
        for number, _event in events:
            if number in self.kept:
                self._read(number)
            else:
                self._write(number)
        return bool(events)

    def _read(self, number: int) -> None:
        piece = os.read(number, 65536)
        if not piece:
            self.poll.unregister(number)
            self.unread.discard(number)
            return
        kept = self.kept[number]
        kept += piece
        self.is_cut = self.is_cut or len(kept) > self.limit_bytes
        if len(kept) > 2 * self.limit_bytes:
            del kept[: -self.limit_bytes]

    def _write(self, number: int) -> None:
        try:
            written = os.write(number, self.unwritten[:65536])
        except BlockingIOError:
            return
        except BrokenPipeError:
            written = len(self.unwritten)
        self.unwritten = self.unwritten[written:]
        if not self.unwritten and self.child.stdin:
            self.poll.unregister(number)
            self.child.stdin.close()
