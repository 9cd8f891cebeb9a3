"""The verdict on a running job as text. Text from nodes is cleaned first."""

from __future__ import annotations

from collections.abc import Sequence

from unhang.core.text import ascii_only, counted, listed, visible
from unhang.core.verdict.answer import screen_of
from unhang.core.verdict.rendering import fold_ranks
from unhang.core.verdict.screen import render_screen
from unhang.core.verdict.suspect import render_suspects
from unhang.jobs.inspect.answer import answer_of, how_many, recorded_lines, verdict_of
from unhang.jobs.inspect.inspection import Inspection, Rank

MOST_ROWS = 16


def render_inspection(
    inspection: Inspection, plain: bool = False, *, width: int = 100, verbose: bool = False
) -> str:
    """The first screen, of at most 12 lines; verbose: with render_details() below it."""
    text = render_screen(screen_of(answer_of(inspection)), width, plain=plain)
    return f"{text}\n{render_details(inspection, plain)}" if verbose else text


def render_details(inspection: Inspection, plain: bool = False) -> str:
    """Where the ranks are, what could not be read, the suspects, and the verdict in full."""
    lines = [
        f"{how_many(inspection)} on {visible(listed([row.host for row in inspection.hosts], 8))}"
    ]
    lines += [
        f"{visible(row.host)}: {visible(row.problem)}" for row in inspection.hosts if row.problem
    ]
    lines += (
        _ras(inspection)
        + _domains(inspection)
        + _ranks(inspection)
        + _pace(inspection)
        + _unread(inspection)
        + render_suspects(inspection.suspects)
    )
    lines += ["", verdict_of(inspection), *recorded_lines(inspection)]
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return ascii_only(text) if plain else text


def _ras(inspection: Inspection) -> list[str]:
    row = inspection.ras
    if row is None:
        return []
    moved = {
        True: "collectives were launched between the looks",
        False: "no collective was launched between the looks",
        None: "one look alone",
    }[row.moved]
    return [f"NCCL {visible(row.version)} answers for {counted(row.ranks, 'rank')}: {moved}"]


def _domains(inspection: Inspection) -> list[str]:
    """The nodes of each NVLink domain, where two nodes are in one: a rack's trays."""
    members: dict[str, list[str]] = {}
    for row in inspection.hosts:
        members.setdefault(row.nvlink_domain, []).append(row.host)
    if not any(name and len(hosts) > 1 for name, hosts in members.items()):
        return []
    return [
        f"{visible(name or 'no NVLink domain')}: {visible(listed(hosts, 8))}"
        for name, hosts in members.items()
    ]


def _ranks(inspection: Inspection) -> list[str]:
    """Ranks that are at the same place in one line; a process without a rank by its number."""
    places: dict[tuple[str, str, str], list[Rank]] = {}
    for row in inspection.ranks:
        where = row.where or f"state {row.state}"
        places.setdefault((str(row.activity or ""), where, str(row.state)), []).append(row)
    lines = [
        f"  {_named(standing):<14} {visible(state, 20):<5} {activity:<11} {visible(where, 200)}"
        for (activity, where, state), standing in list(places.items())[:MOST_ROWS]
    ]
    if len(places) > MOST_ROWS:
        lines.append(f"  and {counted(len(places) - MOST_ROWS, 'more place')}; -o json has them")
    return ["", f"  {'rank':<14} {'state':<5} {'doing':<11} where", *lines] if lines else []


def _pace(inspection: Inspection) -> list[str]:
    """The numbers of --slow, those that were behind most often first."""
    pace = inspection.pace
    if not pace:
        return []
    ranks = sorted(pace.ranks, key=lambda row: -(row.behind or 0))
    lines = ["", f"  {'rank':<6} {'behind':>6} {'W':>5} {'MHz':>5} {'busy':>5} {'cores':>6}  GPU"]
    for row in ranks[:MOST_ROWS]:
        values = [
            "-" if value is None else f"{value:.{digits}f}"
            for value, digits in (
                (row.behind, 0), (row.power_w, 0), (row.clock_mhz, 0), (row.busy, 0),
                (row.cores, 2),
            )
        ]  # fmt: skip
        place = visible(f"{row.gpu or '-'} on {row.host}", 90)
        reasons = visible(", ".join(row.throttle), 100)
        lines.append(
            f"  {row.rank:<6} {values[0]:>6} {values[1]:>5} {values[2]:>5} {values[3]:>5}"
            f" {values[4]:>6}  {place}{f' ({reasons})' if reasons else ''}"
        )
    return [
        *lines,
        f"  of {pace.answered} answers of RAS in {pace.looks} looks, {pace.seconds:.0f} s",
    ]


def _named(standing: Sequence[Rank]) -> str:
    ranks = [row.rank for row in standing if row.rank is not None]
    pids = [str(row.pid) for row in standing if row.rank is None]
    return ", ".join(
        [*([fold_ranks(ranks)] if ranks else []), *([f"pid {listed(pids, 3)}"] if pids else [])]
    )


def _unread(inspection: Inspection) -> list[str]:
    lines = []
    for row in inspection.unread:
        lines.append(
            f"  {row.what} on {visible(listed(row.hosts, 4))}: {visible(row.status, 40)},"
            f" {visible(row.why, 300)}"
        )
        lines += [f"    would help: {visible(row.helps, 300)}"] if row.helps else []
    return ["", "not read:", *lines] if lines else []
