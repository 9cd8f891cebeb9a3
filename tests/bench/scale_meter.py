"""What a command and its children cost: CPU and memory of a control group of their own, or of the
processes where none can be made."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
EVERY_S = 0.1


@dataclass(frozen=True)
class Cost:
    """peak_mb: of memory that is not the page cache, of all processes together; how: it was
    measured. output: the last of both streams."""

    code: int
    cpu_s: float
    wall_s: float
    peak_mb: float
    how: str
    output: str


def measured(
    argv: Sequence[str], environment: Mapping[str, str], folder: Path, deadline_s: float = 3600
) -> Cost:
    """Runs a command to its end. Raises subprocess.TimeoutExpired."""
    with _group() as group, (folder / "output").open("w+b") as output:
        watch, before, began = (
            _Watch(group),
            resource.getrusage(resource.RUSAGE_CHILDREN),
            time.monotonic(),
        )
        enter = group.enter if group else None
        with subprocess.Popen(
            argv,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=enter,  # noqa: PLW1509 -- the thread starts afterwards
        ) as child:
            watch.start()
            try:
                code = child.wait(deadline_s)
            finally:
                child.kill()
                watch.stop()
        wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        used = (
            group.cpu_s()
            if group
            else after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        )
        peak = watch.peak if group else after.ru_maxrss * 1024  # of the largest process
        output.seek(max(0, output.seek(0, os.SEEK_END) - 4000))
        text = output.read().decode("utf-8", "replace")
    return Cost(
        code,
        used,
        wall_s,
        peak / 1e6,
        group.name if group else "rusage of the children, memory of the largest",
        text,
    )


NUMBERS = itertools.count()


def new_name() -> str:
    """Of a group for one command: a process that outlives it, such as a master connection of ssh,
    keeps the group and must not count again."""
    return f"unhang-bench-{os.getpid()}-{next(NUMBERS)}"


class _OldGroup:
    """Control groups of version 1."""

    name = "control groups, version 1"

    def __init__(self) -> None:
        self.cpu, self.memory = (GROUPS / part / new_name() for part in ("cpuacct", "memory"))
        self.folders = (self.cpu, self.memory)

    def cpu_s(self) -> float:
        return int((self.cpu / "cpuacct.usage").read_text()) / 1e9

    def memory_bytes(self) -> int:
        return _stat(self.memory / "memory.stat", "rss")

    def enter(self) -> None:
        for folder in self.folders:
            (folder / "cgroup.procs").write_text("0")


class _Group(_OldGroup):
    """A control group of version 2."""

    name = "a control group, version 2"

    def __init__(self) -> None:
        self.cpu = self.memory = GROUPS / new_name()
        self.folders = (self.cpu, self.cpu)

    def cpu_s(self) -> float:
        return _stat(self.cpu / "cpu.stat", "usage_usec") / 1e6

    def memory_bytes(self) -> int:
        return _stat(self.memory / "memory.stat", "anon")


def _stat(path: Path, name: str) -> int:
    return next(
        int(line.split()[1]) for line in path.read_text().splitlines() if line.split()[0] == name
    )


@contextlib.contextmanager
def _group():
    """A new group, or None where none can be made."""
    group = _Group() if (GROUPS / "cgroup.controllers").is_file() else _OldGroup()
    try:
        for folder in group.folders:
            folder.mkdir(exist_ok=True)
        group.cpu_s(), group.memory_bytes()
    except (OSError, StopIteration):
        group = None
    try:
        yield group
    finally:
        for folder in group.folders if group else ():
            with contextlib.suppress(OSError):
                folder.rmdir()  # refused as long as a process is in it


class _Watch(threading.Thread):
    """Looks at the group's memory until it is stopped."""

    def __init__(self, group: _OldGroup | None) -> None:
        super().__init__(daemon=True)
        self.group, self.peak, self.over = group, 0, threading.Event()

    def run(self) -> None:
        while self.group and not self.over.wait(EVERY_S):
            self.peak = max(self.peak, self.group.memory_bytes())

    def stop(self) -> None:
        self.over.set()
        self.join()
