"""Runs work in a child with limits on CPU, memory and time, so that a user's rule cannot bring the
controller down."""

from __future__ import annotations

import mmap
import os
import resource
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
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
    reader, writer = Pipe(duplex=False)
    child = get_context("fork").Process(target=_child, args=(work, limits, shared, writer))
    before_s = _used_by_children_s()
    child.start()
    writer.close()
    value: Any = None
    kind, patience_s = "time", 0
    try:
        if reader.poll(limits.wall_s):
            patience_s = 10
            kind, value = reader.recv()
    except EOFError:  # it ended before it had answered
        kind = "crash"
    finally:
        child.join(patience_s)
        child.kill()
        child.join()
    last, costliest = _last_and_costliest(shared, _used_by_children_s() - before_s)
    if kind == "raised":
        raise value
    if kind == "done":
        return value
    is_cpu = kind == "crash" and -(child.exitcode or 0) in (signal.SIGXCPU, signal.SIGKILL)
    return Stopped("cpu", costliest) if is_cpu else Stopped(kind, last)


def _used_by_children_s() -> float:
    """The processor time of children that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
    work: Callable[[Callable[[str], None]], Any],
    limits: Limits,
    shared: mmap.mmap,
    writer: Connection,
) -> None:
    """Does the work in the child process."""
    try:
        _limit(limits)
        result: tuple[str, Any] = ("done", work(Mark(shared, limits.cpu_s)))
    except MemoryError:
        result = ("memory", None)
    except BaseException as problem:
        result = ("raised", problem)
    try:
        writer.send(result)
    except Exception as problem:  # an exception that cannot be pickled is reported by its text
        text = f"{type(result[1]).__name__}: {result[1]} ({problem})"
        writer.send(("raised", RuntimeError(text)))


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


def _last_and_costliest(shared: mmap.mmap, used_s: float) -> tuple[str, str]:
    """The last name, and the name with the most processor time: the rule that runs when the time is
    over need not be the one that used it."""
    last, costliest = (
        shared[place : place + MARK_BYTES].split(b"\0")[0].decode("utf-8", "replace")
        for place in (0, MARK_BYTES)
    )
    began_s, most_s = _TIMES.unpack(shared[2 * MARK_BYTES :])
    return last, costliest if costliest and most_s > used_s - began_s else last
