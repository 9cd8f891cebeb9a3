"""Runs work in a child with limits on CPU, memory and time, so that a user's rule cannot bring the
controller down."""

from __future__ import annotations

import mmap
import os
import pickle
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK_BYTES = 256
# processor time that the child had used when its present task began, and the time of the costliest
# task
_TIMES = struct.Struct("dd")


@dataclass(frozen=True)
class Limits:
    """cpu_s (without time that is forgiven), memory_bytes (address space that the child may add)
    and wall_s."""

    cpu_s: int = 60
    memory_bytes: int = 1 << 30
    wall_s: float = 600


@dataclass(frozen=True)
class Stopped:
    """The work was ended. by: cpu, memory, time or crash; at: the last mark, or for cpu the mark
    that used most of it."""

    by: str
    at: str


def run_limited(work: Callable[[Callable[[str], None]], Any], limits: Limits) -> Any:
    """Runs work(mark) in a child process; returns its result (plain data), or Stopped. Its
    exceptions are raised here. mark(text) is cheap: it names the next task, in case that never
    ends; mark("") ends the task."""
    shared = mmap.mmap(-1, 2 * MARK_BYTES + _TIMES.size)
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(work, limits, shared, writer)
    os.close(writer)
    late = True
    try:
        answer, late = _read(reader, time.monotonic() + limits.wall_s)
    finally:
        os.close(reader)
        signal_number, used_s = _end(child, 0 if late else 10)
    return _result(answer, late, signal_number, _last_and_costliest(shared, used_s))


class Mark:
    """Called with the name of the next task, and with "" after it. Costs next to nothing. Shared
    with the parent: the last name, the name of the task with the most processor time so far, and
    the two times of _TIMES."""

    def __init__(self, shared: mmap.mmap, cpu_s: int):
        self.shared = shared
        self.cpu_s = float(cpu_s)
        self.at, self.began_s, self.most_s = "", time.process_time(), 0.0
        self.used_s: dict[str, float] = {}

    def __call__(self, text: str) -> None:
        now_s = time.process_time()
        if self.at:
            used_s = self.used_s[self.at] = self.used_s.get(self.at, 0.0) + now_s - self.began_s
            if used_s > self.most_s:
                self.most_s = used_s
                self._write(MARK_BYTES, self.at)
        self.at, self.began_s = text, now_s
        if text:
            self._write(0, text)
        self.shared[2 * MARK_BYTES :] = _TIMES.pack(now_s if text else float("inf"), self.most_s)

    def _write(self, place: int, text: str) -> None:
        data = text.encode("utf-8", "replace")[: MARK_BYTES - 1] + b"\0"
        self.shared[place : place + len(data)] = data

    def forgive(self, seconds: float) -> None:
        """Adds to the processor time that the work may take, because the cost of a single input is
        not a rule's fault."""
        self.cpu_s += seconds
        resource.setrlimit(
            resource.RLIMIT_CPU, (int(self.cpu_s) + 1, resource.getrlimit(resource.RLIMIT_CPU)[1])
        )


def _child(
    work: Callable[[Callable[[str], None]], Any], limits: Limits, shared: mmap.mmap, writer: int
) -> None:
    """Does the work in the child process; never returns."""
    try:
        _limit(limits)
        result: tuple[str, Any] = ("done", work(Mark(shared, limits.cpu_s)))
    except MemoryError:
        result = ("memory", None)
    except BaseException as problem:
        result = ("raised", problem)
    try:
        data = pickle.dumps(result)
    except Exception as problem:  # an exception that cannot be pickled is reported by its text
        data = pickle.dumps(
            ("raised", RuntimeError(f"{type(result[1]).__name__}: {result[1]} ({problem})"))
        )
    with open(writer, "wb", closefd=True) as out:
        out.write(data)
    os._exit(0)


def _limit(limits: Limits) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    used = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(
        resource.RLIMIT_AS, (_allowed(resource.RLIMIT_AS, used + limits.memory_bytes),) * 2
    )
    resource.setrlimit(
        resource.RLIMIT_CPU,
        (_allowed(resource.RLIMIT_CPU, limits.cpu_s), resource.getrlimit(resource.RLIMIT_CPU)[1]),
    )
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _allowed(kind: int, wanted: int) -> int:
    """The wanted limit, or the caller's own hard limit if that is lower, because it cannot be
    raised."""
    hard = resource.getrlimit(kind)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _read(reader: int, deadline: float) -> tuple[bytes, bool]:
    """(the child's output, whether the deadline passed first)."""
    pieces: list[bytes] = []
    while True:
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0 or not select.select([reader], [], [], remaining_s)[0]:
            return b"".join(pieces), True
        piece = os.read(reader, 1 << 16)
        if not piece:
            return b"".join(pieces), False
        pieces.append(piece)


def _end(child: int, patience_s: float) -> tuple[int, float]:
    """Waits for a child that should end, and kills it after that time. Returns the signal that
    ended it, 0 if there was none or it was killed here, and its processor time."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            return os.WTERMSIG(status) if os.WIFSIGNALED(
                status
            ) else 0, used.ru_utime + used.ru_stime
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    _, _, used = os.wait4(child, 0)
    return 0, used.ru_utime + used.ru_stime


def _last_and_costliest(shared: mmap.mmap, used_s: float) -> tuple[str, str]:
    """The last name, and the name with the most processor time: the rule that runs when the time is
    over need not be the one that used it."""
    last, costliest = (
        shared[place : place + MARK_BYTES].split(b"\0")[0].decode("utf-8", "replace")
        for place in (0, MARK_BYTES)
    )
    began_s, most_s = _TIMES.unpack(shared[2 * MARK_BYTES :])
    return last, costliest if costliest and most_s > used_s - began_s else last


def _result(answer: bytes, late: bool, signal_number: int, at: tuple[str, str]) -> Any:
    last, costliest = at
    if late:
        return Stopped("time", last)
    if not answer:
        return (
            Stopped("cpu", costliest)
            if signal_number in (signal.SIGXCPU, signal.SIGKILL)
            else Stopped("crash", last)
        )
    # from our own child, over a pipe that nobody else has
    kind, value = pickle.loads(answer)  # noqa: S301
    if kind == "memory":
        return Stopped("memory", last)
    if kind == "raised":
        raise value
    return value
