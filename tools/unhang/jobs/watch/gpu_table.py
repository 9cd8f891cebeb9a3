"""What a job does right now, a line for each GPU, or for each rank of a job without GPUs. Samples
in, lines out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unhang.core.table import Line
from unhang.core.text import visible
from unhang.core.verdict.rendering import fold_ranks
from unhang.jobs.watch.detector import GONE, Tick

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
STOPPED = ("T", "t")


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
    by_pid = {row.get("pid"): rank for rank, row in tick.ranks.items()}
    shown: set[int] = set()
    for gpu in sorted(tick.gpus, key=lambda row: _number(row.get("gpu"))):
        pids = gpu.get("pids")
        ranks = (
            sorted({by_pid[pid] for pid in pids if pid in by_pid}) if isinstance(pids, list) else []
        )
        shown.update(ranks)
        numbers = [
            _shown(gpu.get(name))
            for name in (
                "utilization_percent",
                "memory_activity_percent",
                "power_w",
                "clock_sm_mhz",
            )
        ]
        yield (
            [visible(str(gpu.get("gpu")), 8), *_of_ranks(tick, ranks, numbers)],
            _note(tick, ranks, gpu),
        )
    for rank in sorted(set(tick.ranks) - shown):
        yield ["", *_of_ranks(tick, [rank], [""] * 4)], _note(tick, [rank], {})


def _of_ranks(tick: Tick, ranks: list[int], numbers: list[str]) -> list[str]:
    states = "".join(dict.fromkeys(visible(tick.ranks[rank].get("state"), 12) for rank in ranks))
    counts = _counts(tick)
    launched = [counts[str(rank)] for rank in ranks if str(rank) in counts]
    return [
        fold_ranks(ranks) if ranks else "",
        states,
        *numbers,
        str(min(launched)) if launched else "",
    ]


def _note(tick: Tick, ranks: list[int], gpu: Mapping[str, Any]) -> str:
    """What a person should see first."""
    counts, states = _counts(tick), [tick.ranks[rank].get("state") for rank in ranks]
    behind = max(
        (max(counts.values()) - counts[str(rank)] for rank in ranks if str(rank) in counts),
        default=0,
    )
    missing = [
        rank
        for rank in ranks
        if tick.ras and isinstance(tick.ras.get("missing"), list) and rank in tick.ras["missing"]
    ]
    throttle = gpu.get("throttle")
    waits = (
        _number(gpu.get("utilization_percent")) >= WAITS_PERCENT
        and gpu.get("memory_activity_percent") == 0
    )
    notes = (
        (bool(gpu.get("lost")), "does not answer"),
        (any(state in GONE for state in states), "ended"),
        (any(state in STOPPED for state in states), "stopped"),
        ("D" in states, "in the kernel"),
        (bool(missing), "silent"),
        (behind > 0, f"behind by {behind}"),
        (
            isinstance(throttle, list) and bool(throttle),
            f"throttled: {visible(', '.join(map(str, throttle or [])), 200)}",
        ),
        (waits, "waits"),
    )
    return ", ".join(text for holds, text in notes if holds)


def _counts(tick: Tick) -> dict[str, int]:
    counts = tick.ras.get("counts") if tick.ras else None
    return (
        {str(rank): count for rank, count in counts.items() if isinstance(count, int)}
        if isinstance(counts, Mapping)
        else {}
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else -1.0


def _shown(value: Any) -> str:
    return (
        f"{value:.0f}" if isinstance(value, (int, float)) and not isinstance(value, bool) else "?"
    )
