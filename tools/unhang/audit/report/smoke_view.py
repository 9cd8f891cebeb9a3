"""Smoke tests laid out for the page: phases as a timeline, the bandwidth of many tests as a heat
map.

Results in, coordinates and texts out; the template only prints them.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unhang.audit.report.smoke_results import SmokeResult, SmokeTests
from unhang.core.nodeset import fold_hosts
from unhang.core.run.record import Bandwidth
from unhang.core.text import counted, visible

MOST_DRAWN, MOST_ROWS = 12, 60
# shares of the median test; a cell's level is the number of shares that it reaches
LEVELS = (0.5, 0.8, 0.9, 0.97)
LOW = 2  # levels below this one get a mark in addition to their colour
# sizes in a timeline: names, bars, durations, height of a phase
LABEL, BARS, AFTER, STEP = 104, 380, 245, 22
_FAILED = ("fail", "error", "stall", "died", "cut")


@dataclass(frozen=True)
class Bar:
    """One phase. summary: its duration and longest step; kind: ok, skip or bad."""

    name: str
    x: float
    y: float
    width: float
    kind: str
    summary: str
    tip: str


@dataclass(frozen=True)
class Timeline:
    width: float
    height: float
    summary_x: float
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Cell:
    label: str
    tip: str
    level: int
    marked: bool


@dataclass(frozen=True)
class Test:
    hosts: tuple[str, ...]
    verdict: str
    kind: str  # ok, critical or unknown: names of the glyphs
    is_open: bool
    summary: str
    suspects: tuple[str, ...]
    timeline: Timeline | None


@dataclass(frozen=True)
class RateRow:
    hosts: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class RateTable:
    """Tests with the same number of ranks side by side, the slowest first."""

    ranks: int
    columns: tuple[str, ...]
    rows: tuple[RateRow, ...]
    omitted: int


@dataclass(frozen=True)
class SmokeView:
    tests: tuple[Test, ...]
    undrawn: int
    tables: tuple[RateTable, ...]
    notes: tuple[str, ...]


def smoke_view(given: SmokeTests) -> SmokeView | None:
    """The page's data; None if there is nothing to show. Failed tests come first, then the largest
    ones."""
    if not given.results and not given.faults:
        return None
    ordered = sorted(given.results, key=lambda one: (one.verdict == "pass", -len(one.hosts)))
    drawn = [one for one in ordered if one.phases or one.suspects]
    unread = [f"{counted(given.unread, 'older result')} not read"] if given.unread else []
    tests = tuple(
        _test(one, is_open=not place or one.verdict != "pass")
        for place, one in enumerate(drawn[:MOST_DRAWN])
    )
    return SmokeView(
        tests, len(drawn[MOST_DRAWN:]), tuple(_tables(given.results)), (*given.faults[:5], *unread)
    )


def _test(one: SmokeResult, is_open: bool) -> Test:
    group = (
        f"{one.group.gpus} × {visible(one.group.gpu, 60)}" if one.group and one.group.gpu else ""
    )
    when = visible(one.started, 40).replace("T", " ")[:16]
    parts = (
        one.verdict,
        counted(one.world_size or 0, "rank"),
        group,
        when,
        f"{one.duration_s:.0f} s" if one.duration_s else "",
    )
    kind = {"pass": "ok", "fail": "critical"}.get(one.verdict, "unknown")
    suspects = [
        f"{visible(suspect.host or 'nobody in particular', 120)}{_rank(suspect.rank)}:"
        f" {visible(suspect.why, 300)}"
        for suspect in one.suspects[:6]
    ]
    hosts = tuple(member.host for member in one.hosts)
    return Test(
        hosts,
        one.verdict,
        kind,
        is_open,
        ", ".join(part for part in parts if part),
        tuple(suspects),
        timeline(one),
    )


def _rank(rank: int | None) -> str:
    return "" if rank is None else f", rank {rank}"


def timeline(one: SmokeResult) -> Timeline | None:
    """Phases one after another, each as long as its slowest rank took."""
    total = sum(max(0.0, phase.duration_s) for phase in one.phases)
    if not one.phases or total <= 0:
        return None
    bars, begun = [], 0.0
    for place, phase in enumerate(one.phases[:40]):
        lasted = max(0.0, phase.duration_s)
        kind = "bad" if phase.status in _FAILED else "skip" if phase.status == "skip" else "ok"
        steps = sorted(
            ((name, seconds) for name, seconds in phase.steps.items() if name),
            key=lambda step: -step[1],
        )
        longest = (
            f", {_short(steps[0][0])} {_seconds(steps[0][1])}" if steps and lasted >= 1 else ""
        )
        summary = phase.status if kind == "skip" else _seconds(lasted) + longest
        tip = (
            f"{visible(phase.name, 60)}: {phase.status}, {_seconds(lasted)} from"
            f" {_seconds(begun)} on"
            + "".join(f"; {visible(name, 60)} {_seconds(seconds)}" for name, seconds in steps[:4])
        )
        label = f"✕ {visible(phase.status, 20)}, {summary}" if kind == "bad" else summary
        bars.append(
            Bar(
                _short(phase.name, 16),
                LABEL + begun / total * BARS,
                place * STEP + 2,
                max(2.0, lasted / total * BARS),
                kind,
                label,
                tip,
            )
        )
        begun += lasted
    return Timeline(LABEL + BARS + AFTER, len(bars) * STEP + 4, LABEL + BARS + 12, tuple(bars))


def _short(name: str, most: int = 22) -> str:
    shown = visible(name, 200)
    return shown if len(shown) <= most else shown[: most - 1].rstrip() + "…"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.95 else f"{seconds * 1000:.0f} ms"


def level_of(value: float, full: float) -> int:
    """The number of LEVELS that a value reaches; the highest if there is nothing to compare it
    with."""
    return sum(value >= part * full for part in LEVELS) if full > 0 else len(LEVELS)


def _tables(results: Iterable[SmokeResult]) -> Iterable[RateTable]:
    by_ranks: dict[int, list[SmokeResult]] = {}
    for one in results:
        if one.rates:
            by_ranks.setdefault(one.world_size or 0, []).append(one)
    for ranks, members in sorted(by_ranks.items()):
        yield _table(ranks, members)


def _table(ranks: int, members: Sequence[SmokeResult]) -> RateTable:
    """A table, in which a level is a share of the column's median; a bandwidth that was judged too
    low has the lowest level."""
    columns = sorted({(row.op, row.size_bytes) for one in members for row in one.rates})[:16]
    median = {
        column: statistics.median(
            row.busbw_gb_s
            for one in members
            for row in one.rates
            if (row.op, row.size_bytes) == column
        )
        for column in columns
    }
    rows = []
    for one in members:
        found = {(row.op, row.size_bytes): row for row in one.rates}
        cells = tuple(_rate(found.get(column), median[column]) for column in columns)
        rows.append(
            (
                min(cell.level for cell in cells),
                RateRow(tuple(member.host for member in one.hosts), cells),
            )
        )
    rows.sort(key=lambda row: (row[0], row[1].hosts))
    heads = tuple(f"{visible(op, 40)} {_size(size)}" for op, size in columns)
    return RateTable(ranks, heads, tuple(row for _, row in rows[:MOST_ROWS]), len(rows[MOST_ROWS:]))


def _rate(row: Bandwidth | None, median: float) -> Cell:
    if row is None:
        return Cell("not measured", "", len(LEVELS), False)
    level = 0 if row.verdict == "fail" else level_of(row.busbw_gb_s, median)
    least = f", at least {row.low_gb_s:.1f} expected" if row.low_gb_s is not None else ""
    return Cell(
        f"{row.busbw_gb_s:.1f}",
        f"{row.busbw_gb_s:.1f} GB/s{least}; the median of these tests is {median:.1f}",
        level,
        level < LOW,
    )


def _size(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}" if size % unit == 0 else f"{size / unit:.1f} {name}"
    return f"{size} B"


def folded(hosts: Sequence[str]) -> str:
    """Hosts of a test, folded for the page."""
    return fold_hosts(hosts) if hosts else "no host"
