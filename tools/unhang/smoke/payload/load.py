"""How busy the machine is, from /proc: tasks that wait for a CPU, and time that the hypervisor
took."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from .roots import rooted

EVERY_S = 1.0
SAMPLES = 11  # the last ten seconds, as long as a step may take


class LoadWatch:
    """Samples of the last seconds, the oldest first."""

    def __init__(self) -> None:
        self.samples: list[dict[str, Any]] = []

    def look(self, pids: Sequence[int]) -> None:
        """Takes a sample, at most one a second. pids: the ranks."""
        if not self.samples or time.monotonic() - self.samples[-1]["at"] >= EVERY_S:
            sample = {**read_load(), "queued_s": {pid: queued_s(pid) for pid in pids}}
            self.samples = [*self.samples[1 - SAMPLES :], sample]

    def queued(self, pid: int, since: float) -> float | None:
        """The share of the time since its step began that a rank's threads waited for a CPU, all
        added; None where the kernel does not count it. since: monotonic."""
        known = (one for one in self.samples if one["queued_s"].get(pid) is not None)
        first = next((one for one in known if one["at"] >= since), None)
        now, over_s = queued_s(pid), time.monotonic() - first["at"] if first else 0.0
        if first is None or now is None or over_s < EVERY_S:
            return None
        before: float = first["queued_s"][pid]
        return round((now - before) / over_s, 2)

    def answer(self) -> dict[str, Any]:
        """{cpus, over_s, runnable: mean number of tasks that run or want to, waited: share of the
        time in which a task waited for a CPU, stolen: share that the hypervisor took}; None for
        what cannot be read."""
        first, last = (self.samples or [read_load()])[0], read_load()
        over_s = last["at"] - first["at"]
        ticks = (last["ticks"] or 0) - (first["ticks"] or 0)
        runnable = [one["runnable"] for one in self.samples if one["runnable"] is not None]
        known = last["waited_us"] is not None and first["waited_us"] is not None and over_s > 0
        return {
            "cpus": os.cpu_count(),
            "over_s": round(over_s, 1),
            "runnable": round(sum(runnable) / len(runnable), 1) if runnable else None,
            "waited": round((last["waited_us"] - first["waited_us"]) / 1e6 / over_s, 2)
            if known
            else None,
            "stolen": round((last["stolen"] - first["stolen"]) / ticks, 2) if ticks > 0 else None,
        }


def read_load() -> dict[str, Any]:
    """One sample. waited_us: total of /proc/pressure/cpu; ticks, stolen: of /proc/stat; runnable:
    of /proc/loadavg without the reader. None where a file has no such value."""
    pressure = _words(rooted("/proc/pressure/cpu"))
    times = [int(word) for word in _words(rooted("/proc/stat"))[1:9] if word.isdigit()]
    running = (_words(rooted("/proc/loadavg")) + [""] * 4)[3].partition("/")[0]
    total = (pressure[4] if len(pressure) > 4 else "").rpartition("total=")[2]
    return {
        "at": time.monotonic(),
        "waited_us": int(total) if total.isdigit() else None,
        "ticks": sum(times) if len(times) == 8 else None,
        "stolen": times[7] if len(times) == 8 else None,
        "runnable": int(running) - 1 if running.isdigit() else None,
    }


def queued_s(pid: int) -> float | None:
    """The seconds that the threads of a process waited for a CPU (/proc/PID/task/*/schedstat)."""
    folder = "/proc/%d/task" % pid
    try:
        threads = os.listdir(folder)
    except OSError:
        return None
    waits = [_words("%s/%s/schedstat" % (folder, thread)) for thread in threads]
    known = [int(words[1]) for words in waits if len(words) == 3 and words[1].isdigit()]
    return sum(known) / 1e9 if known else None


def _words(path: str) -> list[str]:
    """The words of a file's first line; [] where it cannot be read."""
    try:
        with open(path, encoding="ascii", errors="replace") as source:
            return source.readline(400).split()
    except OSError:
        return []
