"""Counters of NVLink, PCIe and memory errors, read before, during and after the load."""

from __future__ import annotations

import time
from typing import Any

from .counters import changed, peers_of
from .nvml import NVML_S, NvmlQuestion

COUNTERS_S = 60.0  # between readings under load
MOST_LOOKS = 24  # beyond that, every second reading is dropped: all readings go out in one line, and its reader accepts at most half a megabyte


class Looks:
    """rows: [{when, counted_s, read, problem, moved: {name: rise since the first reading}, peers: {kind: how many were read}}]."""

    def __init__(self, there: bool) -> None:
        self.there = there
        self.rows: list[dict[str, Any]] = []
        self.first: dict[str, int] = {}
        self.began = self.last = time.monotonic()
        self.question: NvmlQuestion | None = None

    def take(self, when: str, limit_s: float) -> None:
        """Takes one reading and waits for it."""
        if self.there:
            self.keep(NvmlQuestion().answer(limit_s), when)

    def take_if_due(self) -> None:
        """Reads the counters from time to time in a child process, without waiting for it."""
        now = time.monotonic()
        if not self.there or now - self.last < COUNTERS_S:
            return
        if self.question is None:
            self.question = NvmlQuestion()
        elif self.question.process.poll() is not None or now - self.question.began > NVML_S:
            self.keep(self.question.answer(0.1), "during")
            self.question, self.last = None, now

    def keep(self, answer: dict[str, Any], when: str) -> None:
        """Keeps only counters that rose, and how many counters of each such kind exist."""
        now, counters = time.monotonic(), answer["counters"]
        if when == "before":
            self.first, self.began = counters, now
        moved = changed(self.first, counters)
        self.rows.append({
            "when": when, "counted_s": round(now - self.began, 1), "read": len(counters), "problem": answer["problem"], "moved": moved,
            "peers": peers_of(moved, counters),
        })  # fmt: skip
        if len(self.rows) > MOST_LOOKS:
            del self.rows[1:-1:2]
