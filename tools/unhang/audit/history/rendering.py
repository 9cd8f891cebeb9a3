"""Runs, and what changed between them, as text for people. Text from nodes passes through
`visible`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unhang.audit.history.changes import Changes, FactChange, FoundChange
from unhang.audit.history.past import HOLDS, Event
from unhang.audit.history.runs import PastRun, counts
from unhang.audit.report import phrases
from unhang.audit.report.folding import item_label
from unhang.core.nodeset import broken
from unhang.core.run.findings import NODE_VERDICTS
from unhang.core.text import brief, counted, visible, wrapped

LABEL = 10
LONGEST_NODES = 44
LONGEST_NOT_ASKED = 600  # a person looks among them for the node that was ill
LONGEST_VALUE = 80
MOST_TOGETHER = 4
_HEAD = (
    "RUN",
    "STARTED (UTC)",
    "NODES",
    *map(str.upper, NODE_VERDICTS),
    "INVENTORY",
    "LIMIT",
)


def render_runs(runs: Sequence[PastRun], width: int) -> list[str]:
    """Runs, oldest first: a table, or a few lines for each where the table is wider than `width`
    columns. Raises UserError for a run whose findings cannot be read."""
    cells = [_HEAD, *(_run_cells(run) for run in runs)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(_HEAD))]
    table = [
        "  ".join(
            _aligned(cell, width, place)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return (
        table
        if max(map(len, table)) <= width
        else [line for run in runs for line in _run_lines(run, width)]
    )


def _run_lines(run: PastRun, width: int) -> list[str]:
    """A run in a narrow terminal."""
    limit = f", limit {visible(run.limit, 40)}" if run.limit else ""
    found = ", ".join(
        f"{count:,} {name}" for name, count in zip(NODE_VERDICTS, counts(run), strict=True) if count
    )
    about = [
        f"  {_when(run.started)}, {visible(run.inventory_name, 40)}{limit}",
        f"  {counted(len(run.hosts), 'node')}{': ' if found else ''}{found}",
    ]
    return [visible(run.id, 200), *(line for text in about for line in wrapped(text, width, 2))]


def _run_cells(run: PastRun) -> tuple[str, ...]:
    return (
        visible(run.id, 200),
        _when(run.started),
        *(f"{number:,}" for number in (len(run.hosts), *counts(run))),
        visible(run.inventory_name, 40),
        visible(run.limit or "", 40),
    )


def _aligned(cell: str, width: int, place: int) -> str:
    return cell.rjust(width) if 2 <= place <= 7 else cell.ljust(width)


def render_changes(
    before: PastRun, now: PastRun, changes: Changes, program: str, width: int
) -> list[str]:
    """What changed between two runs."""
    head = wrapped(
        f"from run {visible(before.id, 200)} of {_when(before.started)} to"
        f" {visible(now.id, 200)} of {_when(now.started)} UTC",
        width,
    )
    lines = [line for one in changes.findings for line in _finding_lines(one, width)]
    lines += [line for facts in _first_values(changes.facts) for line in _fact(facts, width)]
    if changes.only_now:
        asked = f"{_nodes(changes.only_now, LONGEST_NOT_ASKED)} in the later run alone"
        lines += _labelled("ASKED", asked, width)
    if changes.only_before:
        other = (
            " (another inventory)"
            if now.inventory != before.inventory
            else f" (limit {visible(now.limit, 80)})"
            if now.limit
            else ""
        )
        asked = f"{_nodes(changes.only_before, LONGEST_NOT_ASKED)} in the later run{other}"
        lines += _labelled("NOT ASKED", f"{asked}: its present state is not known", width)
    if changes.other_machines:
        text = f"{_nodes(changes.other_machines)}: the name means another machine now"
        lines += _labelled("NOT ASKED", text, width)
    if not lines:
        return [*head, "", "nothing changed"]
    named = changes.findings[0].rule if changes.findings else ""
    return [
        *head, "", *lines, *([f"next: {program} history {visible(named, 120)}"] if named else [])
    ]  # fmt: skip


def render_events(
    name: str, about: str, found: Sequence[Event], runs: int, width: int
) -> list[str]:
    """What the runs say about a node or a rule, newest last; then what holds now."""
    lines = [*wrapped(f"{visible(name, 200)}: {about}", width), ""]
    changed = [event for event in found if event.what != HOLDS]
    for event in (*changed, *(event for event in found if event.what == HOLDS)):
        where = f"{_nodes(event.hosts)}: " if event.hosts != (name,) else ""
        text = f"{visible(event.what, 40)}: {where}{visible(event.text, 400)}"
        lines += _labelled(_when(event.started), text, width, 18)
        for fact in event.together[:MOST_TOGETHER]:
            lines += _labelled("", f"with it changed {visible(fact, 300)}", width, 18)
    unchanged = [f"nothing has changed in the last {counted(runs, 'run')}"]
    return [*lines, *([] if changed else unchanged)]


def _finding_lines(one: FoundChange, width: int) -> list[str]:
    place = f": {visible(item_label(one.place), 80)}" if one.place else ""
    text = (
        f"{visible(one.severity, 20)}: {_nodes(one.hosts)}{place}: {visible(one.title, 200)}"
        f" [{visible(one.rule, 120)}]"
    )
    return _labelled(one.change.upper(), text, width)


def _first_values(facts: Sequence[FactChange]) -> list[list[FactChange]]:
    """Facts by line: those that the same nodes have for the first time share one, for an upgraded
    unhang reads more facts than the runs before it had."""
    lines: dict[object, list[FactChange]] = {}
    for one in facts:
        is_first = one.before is None and "[" not in one.fact
        lines.setdefault(one.hosts if is_first else id(one), []).append(one)
    return list(lines.values())


def _fact(facts: Sequence[FactChange], width: int) -> list[str]:
    one = facts[0]
    if len(facts) == 1:
        changed = f"{visible(one.fact, 160)}: {_value(one.before)} -> {_value(one.now)}"
        return _labelled("FACT", f"{_nodes(one.hosts)}: {changed}", width)
    return _labelled(
        "FACT",
        f"{_nodes(one.hosts)}: first values of"
        f" {', '.join(visible(each.fact, 160) for each in facts)}; -o json has them",
        width,
    )


def _value(value: Any) -> str:
    """A value as text; no value is (none), because a fact may have the text `none`."""
    return "(none)" if value is None else visible(brief(value), LONGEST_VALUE) or "(empty)"


def _nodes(hosts: Sequence[str], longest: int = LONGEST_NODES) -> str:
    if hosts == ("",):
        return "the whole fleet"
    return phrases.hosts(hosts, longest)


def _when(text: str) -> str:
    return visible(text, 40).replace("T", " ").removesuffix("Z")[:16]


def _labelled(label: str, text: str, width: int, column: int = LABEL + 2) -> list[str]:
    within = max(width - column, 20)
    lines = [part for line in wrapped(text, within) for part in broken(line, within).split("\n")]
    return [f"{label if not place else '':<{column}}{line}" for place, line in enumerate(lines)]
