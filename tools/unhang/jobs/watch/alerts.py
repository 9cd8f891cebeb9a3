"""What is reported of a running job at once, without a look: ranks that share a GPU, a GPU that
the driver calls too hot, a network interface whose link went away. `inspect --slow`
says which rank is slow. Values in, lines out.

A class ships only with a trace of real hardware or a real kernel on which it speaks, and others on
which it is silent (test_alerts).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from unhang.core.text import visible
from unhang.core.verdict.rendering import fold_ranks
from unhang.jobs.inspect.crowded import shared_words
from unhang.jobs.inspect.slow_gpus import HOT
from unhang.jobs.watch.detector import NODE, Tick, ranks_by_gpu

QUIET_S = 60.0  # an interface that flaps all the time is reported once in so long
HOT_S = 10.0  # how long a GPU is too hot before it is reported


@dataclass
class Alerts:
    """What was seen and reported so far."""

    carriers: dict[tuple[str, str], int] = field(default_factory=dict)
    reported: dict[tuple[str, str], float] = field(default_factory=dict)
    crowded: set[tuple[str, str]] = field(default_factory=set)
    shared: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    owed: dict[tuple[str, str], int] = field(default_factory=dict)
    apart: set[tuple[str, str]] = field(default_factory=set)
    hot: dict[tuple[str, str], float] = field(default_factory=dict)

    def of(self, tick: Tick) -> Iterator[str]:
        """The lines for one moment."""
        yield from self._shared_gpus(tick)
        yield from self._hot_gpus(tick)
        for row in tick.nics:
            yield from self._link(row, tick.t)

    def _shared_gpus(self, tick: Tick) -> Iterator[str]:
        ranks_of = ranks_by_gpu(tick)
        for key, ranks in ranks_of.items():
            before, self.shared[key] = self.shared.get(key), ranks
            if len(ranks) < 2 or before != ranks or key in self.crowded:
                continue  # two moments that agree, because ranks open their GPUs one after another
            self.crowded.add(key)
            empty = sum(not (gpu.pids or gpu.is_lost) for gpu in tick.gpus if gpu.node == key[0])
            yield shared_words(ranks, visible(key[1], 8), empty, _on(key[0]))

    def _hot_gpus(self, tick: Tick) -> Iterator[str]:
        """GPUs of ranks that the driver slows down for heat or supply, all those of a node in one
        line, each GPU once."""
        ranks_of, due = ranks_by_gpu(tick), dict[tuple[str, str], list[int]]()
        for gpu in tick.gpus:
            key = gpu.key
            reasons = [one for one in HOT if one in gpu.throttle] if ranks_of[key] else []
            if not reasons:
                self.hot.pop(key, None)
            elif (
                tick.t - self.hot.setdefault(key, tick.t) >= HOT_S
                and key not in self.apart
                and key[1].isdigit()
            ):
                self.apart.add(key)
                due.setdefault((key[0], ", ".join(reasons)), []).append(int(key[1]))
        for (node, why), numbers in due.items():
            what = (
                f"GPU {numbers[0]} is" if len(numbers) == 1 else f"GPUs {fold_ranks(numbers)} are"
            )
            yield (
                f"{what} throttled{_on(node)} ({why}): fans, inlet air, power supply; nvidia-smi -q"
                " -d TEMPERATURE,PERFORMANCE has the limits"
            )

    def _link(self, row: Mapping[str, Any], t: float) -> Iterator[str]:
        key, changes = (str(row.get(NODE) or ""), str(row.get("nic"))), row.get("carrier_changes")
        if not isinstance(changes, int):
            return
        before, self.carriers[key] = self.carriers.get(key), changes
        if before is None or changes <= before:
            return
        self.owed[key] = self.owed.get(key, 0) + changes - before
        if t - self.reported.get(key, -QUIET_S) < QUIET_S:
            return
        self.reported[key], count = t, self.owed.pop(key)
        what = (
            "went away"
            if not row.get("up")
            else "went away and came back"
            if count > 1
            else "came back"
        )
        yield (
            f"the link of {visible(key[1], 40)}{_on(key[0])} {what} ({count}"
            f" {'change' if count == 1 else 'changes'}): cable, module, switch port or driver"
        )


def _on(node: str) -> str:
    return f" on {visible(node, 80)}" if node else ""
