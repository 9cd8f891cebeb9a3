"""Jobs that work, for as long as is wanted: recorded traces of real GPUs, one after another, each
going on from the counters of the one before."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from unhang.jobs.watch.detector import Tick, ticks

RECORDED = Path(__file__).resolve().parents[1] / "fixtures" / "inspect"
OF_ONE_GPU = tuple(
    RECORDED / "traces" / f"{name}.jsonl"
    for name in ("healthy", "slow", "compile", "checkpoint", "evaluation", "longstep")
)
OF_TWO_GPUS = tuple(
    RECORDED / "two_gpus" / "traces" / f"{name}.jsonl"
    for name in ("healthy", "full", "checkpoint", "evaluation", "longstep")
)


def endless(
    rng: random.Random, seconds: float, paths: tuple[Path, ...], silent_s: float = 0.0
) -> Iterator[dict[str, Any]]:
    """The samples of so many seconds, in random order of the traces; one answer of RAS in twenty is
    lost. silent_s: after one trace in ten nothing moves for so long at most."""
    recorded = [
        list(ticks(map(json.loads, path.read_text(encoding="utf-8").splitlines())))
        for path in paths
    ]
    t, counts = 0.0, 0
    while t < seconds:
        part = rng.choice(recorded)
        first, last = part[0], part[-1]
        for tick in part:
            yield from _moved(
                tick,
                round(t + tick.t - first.t, 3),
                counts - first.counts["0"],
                rng.random() > 0.05,
            )
        counts += last.counts["0"] - first.counts["0"]
        t += last.t - first.t + rng.uniform(0.8, 3.0)
        until = t + rng.uniform(0.0, silent_s) * (silent_s > 0 and rng.random() < 0.1)
        quiet = replace(last, gpus=[replace(gpu, memory=0) for gpu in last.gpus])
        while t < until:
            yield from _moved(quiet, round(t, 3), counts - last.counts["0"], True)
            t += 2.0


def _moved(tick: Tick, now: float, more: int, answers: bool) -> Iterator[dict[str, Any]]:
    grown = {rank: count + more for rank, count in tick.counts.items()}
    yield (
        {"t": now, "ras": {"counts": grown}} if answers else {"t": now, "ras": None, "why": "lost"}
    )
    for rank, row in tick.ranks.items():
        yield {**to_builtins(row), "rank": rank, "t": now}
    for gpu in tick.gpus:
        of_it = {"utilization_percent": gpu.busy, "memory_activity_percent": gpu.memory}
        yield {"t": now, "gpu": gpu.name, "pids": [*gpu.pids], **of_it}
