"""The single line of progress that a long audit shows."""

from __future__ import annotations

import sys
from collections import Counter

from unhang.core.text import counted

REDRAW_S = 0.1


class Progress:
    """Counts nodes; draws on standard error when `shown`. Times are monotonic seconds."""

    def __init__(self, shown: bool, started_s: float):
        self.shown = shown
        self.started_s = started_s
        self.drawn_s = 0.0
        self.expected = 0
        self.counts: Counter[str] = Counter()
        self.open = False

    def expect(self, nodes: int) -> None:
        self.expected = nodes

    def count(self, status: str, now_s: float) -> None:
        self.counts[status] += 1
        if self.shown and (
            now_s - self.drawn_s >= REDRAW_S or sum(self.counts.values()) == self.expected
        ):
            self.drawn_s = now_s
            self.open = True
            sys.stderr.write("\r" + self.line(now_s))
            sys.stderr.flush()

    def line(self, now_s: float) -> str:
        """The line's text: 12 of 128 nodes, 1 failed, 2 unreachable, 0:12."""
        elapsed_s = int(now_s - self.started_s)
        done = sum(self.counts.values())
        failed = done - self.counts["ok"] - self.counts["unreachable"]
        elapsed = f"{elapsed_s // 60}:{elapsed_s % 60:02d}"
        return (
            f"{done} of {counted(self.expected, 'node')}, {failed} failed,"
            f" {self.counts['unreachable']} unreachable, {elapsed} "
        )

    def end(self) -> None:
        """Keeps the line on the screen and moves to the next."""
        if self.open:
            self.open = False
            sys.stderr.write("\n")
            sys.stderr.flush()
