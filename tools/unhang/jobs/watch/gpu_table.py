"""What a job does right now, a line for each GPU, or for each rank of a job without GPUs. Samples
in, lines out."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.core.table import Line
from unhang.core.text import visible
from unhang.core.verdict.job import GONE, HALTED
from unhang.core.verdict.rendering import fold_ranks
from unhang.jobs.inspect.whose_gpus import Gpu
from unhang.jobs.watch.detector import Tick
from unhang_node.base.parse.values import integer_or_none

WAITS_PERCENT = 95  # a GPU that waits in NCCL's kernel shows as busy and moves no memory
COLUMNS = {
    "GPU": 3,
    "rank": 7,
    "state": 5,
    "util %": 6,
    "mem %": 5,
    "W": 4,
    "MHz": 4,
    "launched": 10,
}


def gpu_table(tick: Tick, since_s: float, width: int) -> list[Line]:
    """What fits into 80 columns, where there are as many. since_s: seconds since the last
    progress."""
    quiet = f", no progress for {since_s:.0f} s" if since_s >= 1 else ""
    rows = [(list(COLUMNS), "", "bold")]
    rows += [(cells, note, "bold" if note else "") for cells, note in _lines(tick)]
    lines: list[Line] = [((_cut(f"{tick.t:.0f} s watched{quiet}", width), ""),)]
    for cells, note, style in rows:
        shown = (
            f"{_cut(cell, wide):{'<' if name in ('rank', 'state') else '>'}{wide}}"
            for cell, (name, wide) in zip(cells, COLUMNS.items(), strict=True)
        )
        lines.append(((_cut(" ".join([*shown, note]), width), style),))
    return lines


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _lines(tick: Tick) -> Iterator[tuple[list[str], str]]:
    by_pid = {row.pid: rank for rank, row in tick.ranks.items()}
    shown: set[int] = set()
    for gpu in sorted(tick.gpus, key=lambda gpu: integer_or_none(gpu.name) or 0):
        ranks = sorted({by_pid[pid] for pid in gpu.pids if pid in by_pid})
        shown.update(ranks)
        numbers = [*map(_shown, (gpu.busy, gpu.memory, gpu.power_w, gpu.clock_mhz))]
        yield (
            [visible(gpu.name, 8), *_of_ranks(tick, ranks, numbers)],
            _note(tick, ranks, gpu),
        )
    for rank in sorted(set(tick.ranks) - shown):
        yield ["", *_of_ranks(tick, [rank], [""] * 4)], _note(tick, [rank], None)


def _of_ranks(tick: Tick, ranks: list[int], numbers: list[str]) -> list[str]:
    states = "".join(dict.fromkeys(visible(tick.ranks[rank].state, 12) for rank in ranks))
    launched = [tick.counts[str(rank)] for rank in ranks if str(rank) in tick.counts]
    return [
        fold_ranks(ranks) if ranks else "",
        states,
        *numbers,
        str(min(launched)) if launched else "",
    ]


def _note(tick: Tick, ranks: list[int], gpu: Gpu | None) -> str:
    """What a person should see first."""
    counts, states = tick.counts, [tick.ranks[rank].state for rank in ranks]
    behind = max(
        (max(counts.values()) - counts[str(rank)] for rank in ranks if str(rank) in counts),
        default=0,
    )
    throttle = ", ".join(gpu.throttle) if gpu else ""
    notes = (
        (gpu and gpu.is_lost, "does not answer"),
        (any(state in GONE for state in states), "ended"),
        (any(state in HALTED for state in states), "stopped"),
        ("D" in states, "in the kernel"),
        ({*ranks}.intersection(tick.missing), "silent"),
        (behind > 0, f"behind by {behind}"),
        (throttle, f"throttled: {visible(throttle, 200)}"),
        (gpu and (gpu.busy or 0) >= WAITS_PERCENT and gpu.memory == 0, "waits"),
    )
    return ", ".join(text for holds, text in notes if holds)


def _shown(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"
