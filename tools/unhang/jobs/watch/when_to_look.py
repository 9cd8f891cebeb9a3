"""When a watched job is looked at again: one that hangs, and with --slow one that works.
Values in, values out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from unhang.core.verdict.job import EVEN, SLOW
from unhang.jobs.inspect.inspection import Inspection
from unhang.jobs.watch.detector import NO_PROGRESS, Event, Tick

MOST_PATIENCE_S = 1800.0
GPU_FIRST_S = 60.0  # how much longer than a job with a GPU one without waits for its turn
SLOW_EVERY_S = 600.0
SECOND_SHARE = 0.1  # of that: until the look that confirms what one found


def twice(wait_s: float, first_s: float) -> float:
    """Seconds until the next look, where the last one after so many found nothing new."""
    return min(2 * wait_s, max(MOST_PATIENCE_S, first_s))


@dataclass
class Patience:
    """How long a job that hangs is left until the next look: one that idles for days costs
    no look a minute. pause_s: until the second look."""

    pause_s: float
    looked: float | None = None
    wait_s: float = 0.0

    def is_due(self, event: Event) -> bool:
        """Whether to look now; progress since the last look is news. So is a rank that ended or was
        stopped: a silence after it is looked at as any other."""
        if event.what != NO_PROGRESS:
            return True
        if self.looked is None or event.since > self.looked:
            self.wait_s = self.pause_s
        elif event.t - self.looked < self.wait_s:
            return False
        else:
            self.wait_s = twice(self.wait_s, self.pause_s)
        self.looked = event.t
        return True


@dataclass
class Turn:
    """A job that waits for a look. user: whose it is; asked, looked: when it asked, and when it was
    looked at last, in seconds of one clock."""

    user: str
    has_gpu: bool = False
    asked: float = 0.0
    looked: float = 0.0


@dataclass
class Turns:
    """Looks go round by user, and of one user by job: however many jobs a user has, another waits
    for one of them. ended: {user: when the last look ended, and as long as it took after that}."""

    ended: dict[str, float] = field(default_factory=dict)

    def place(self, turn: Turn) -> tuple[float, float]:
        """The lowest is next."""
        since = max(turn.asked, self.ended.get(turn.user, 0.0))
        return since + (0.0 if turn.has_gpu else GPU_FIRST_S), turn.looked

    def takes(self, turn: Turn, began: float, ended: float) -> None:
        """Takes that a job was looked at: what is slow, or times out, waits longer."""
        turn.looked, self.ended[turn.user] = ended, ended + (ended - began)


@dataclass
class SlowLooks:
    """When a job that makes progress is looked at for a slow rank, and what of it is news.

    every_s     seconds of progress until a look
    longest_s   longer ones without progress do not count
    found       (host, rank) of those whom the last look found; empty: it called the job even
    said        those who were reported last
    agreed      how many the last two looks both found; None where the last had no answer
    """

    every_s: float
    longest_s: float
    wait_s: float = 0.0
    progress_s: float = 0.0
    moved: float | None = None
    found: frozenset[tuple[Any, Any]] | None = None
    said: frozenset[tuple[Any, Any]] = frozenset()
    agreed: int | None = None
    has_failed: bool = False

    def is_due(self, tick: Tick, since_s: float) -> bool:
        """Takes a moment and the seconds since the last progress. One rank has no peers here."""
        if since_s > 0 or len(tick.ranks) < 2:
            return False
        step_s = tick.t - (tick.t if self.moved is None else self.moved)
        self.moved = tick.t
        self.progress_s += step_s if 0 < step_s < self.longest_s else 0.0
        if self.progress_s < (self.wait_s or self.every_s):
            return False
        self.progress_s = 0.0
        return True

    def takes(self, inspection: Inspection) -> bool:
        """Takes an answer; whether it is to be reported: two in a row name the same ranks, or
        nobody, and was not reported. One alone is confirmed soon, but no second time in a row."""
        named = frozenset((one.host, one.rank) for one in inspection.suspects)
        before, self.found = self.found, {SLOW: named, EVEN: frozenset()}.get(inspection.state)
        agree = self.found is not None and self.found == before
        is_new = self.found is not None and self.found != self.said
        was_soon = 0 < self.wait_s < self.every_s
        confirms = is_new and not agree and not was_soon
        self.wait_s = self.every_s * (SECOND_SHARE if confirms else 1)
        self.agreed = len(named) if agree else 0
        if self.found is None or not (agree and is_new):
            return False
        self.said = self.found
        return True

    def fails(self) -> bool:
        """Takes that a look had no answer, as of a job without NCCL; whether that is the first."""
        self.wait_s = twice(max(self.wait_s, self.every_s), self.every_s)
        self.found, self.agreed = None, None
        is_first, self.has_failed = not self.has_failed, True
        return is_first
