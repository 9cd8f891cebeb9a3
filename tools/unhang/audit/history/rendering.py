"""The history as text for people, one line for each event. Text from nodes passes through
`visible`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from unhang.audit.history.beginnings import Beginning, Event, Holding
from unhang.audit.history.changes import Changes, FactChange, FoundChange
from unhang.audit.history.recurring import EndingWaiver, Flapping, OwnPast
from unhang.audit.history.run_rows import RunRow, inventory_of
from unhang.audit.report.folding import fold_items, item_label
from unhang.core.nodeset import broken, fold_hosts, shortened
from unhang.core.run.findings import NODE_VERDICTS, SEVERITIES
from unhang.core.text import brief, counted, visible, wrapped

LABEL = 10
LONGEST_NODES = 44
LONGEST_NOT_ASKED = 600  # a person looks among them for the node that was ill
LONGEST_VALUE = 80
MOST_TOGETHER = 4
# placeholder for the things in a line; no text of a node contains it, because visible() escapes it
_ITEMS = "\0"
_HEAD = (
    "RUN",
    "STARTED (UTC)",
    "NODES",
    "CRITICAL",
    "ERROR",
    "WARNING",
    "UNREAD",
    "NO-GPU",
    "HEALTHY",
    "INVENTORY",
    "LIMIT",
)


def render_runs(rows: Sequence[RunRow], file: str, width: int) -> list[str]:
    """Runs, oldest first: a table, or a few lines for each where the table is wider than `width`
    columns."""
    if not rows:
        return wrapped(f"no run in the history at {visible(file, 400)}", width)
    cells = [_HEAD, *(_run_cells(row) for row in rows)]
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
        else [line for row in rows for line in _run_lines(row, width)]
    )


def _run_lines(row: RunRow, width: int) -> list[str]:
    """A run in a narrow terminal."""
    limit = f", limit {visible(row.limit, 40)}" if row.limit else ""
    counts = dict(zip(NODE_VERDICTS, _counts(row), strict=True))
    found = (
        ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        if row.judged
        else "not judged"
    )
    about = [
        f"  {_when(row.started)}, {visible(inventory_of(row), 40)}{limit}",
        f"  {counted(row.nodes, 'node')}{': ' if found else ''}{found}",
    ]
    return [visible(row.id, 200), *(line for text in about for line in wrapped(text, width, 2))]


def _counts(row: RunRow) -> tuple[int | None, ...]:
    """In the order of NODE_VERDICTS."""
    return (row.critical, row.error, row.warning, row.unread, row.no_gpu, row.healthy)


def _run_cells(row: RunRow) -> tuple[str, ...]:
    numbers = (f"{row.nodes:,}", *("-" if one is None else f"{one:,}" for one in _counts(row)))
    return (
        visible(row.id, 200),
        _when(row.started),
        *numbers,
        visible(inventory_of(row), 40),
        visible(row.limit or "", 40),
    )


def _aligned(cell: str, width: int, place: int) -> str:
    return cell.rjust(width) if 2 <= place <= 7 else cell.ljust(width)


def render_changes(
    before: RunRow, now: RunRow, changes: Changes, program: str, width: int
) -> list[str]:
    """What changed between two runs."""
    runs = (
        f"from run {visible(before.id, 200)} of {_when(before.started)} to"
        f" {visible(now.id, 200)} of {_when(now.started)} UTC"
    )
    unjudged = [row.id for row in (before, now) if row.judged is None]
    texts = [
        runs,
        *(
            f"run {visible(one, 80)} was not judged when it was stored: its findings are those of"
            " the run before it"
            for one in unjudged
        ),
    ]
    head = [*(line for text in texts for line in wrapped(text, width)), ""]
    lines: list[str] = []
    lines += [line for one in changes.findings for line in _finding_lines(one, width)]
    lines += [line for facts in _first_values(changes.facts) for line in _fact(facts, width)]
    if changes.first_seen:
        lines += _labelled("FIRST SEEN", _nodes(changes.first_seen), width)
    if changes.asked_again:
        lines += _labelled(
            "ASKED",
            f"{_nodes(changes.asked_again, LONGEST_NOT_ASKED)} in the later run alone",
            width,
        )
    if changes.not_asked:
        limit = (
            " (another inventory)"
            if now.inventory != before.inventory
            else f" (limit {visible(now.limit, 80)})"
            if now.limit
            else ""
        )
        lines += _labelled(
            "NOT ASKED",
            f"{_nodes(changes.not_asked, LONGEST_NOT_ASKED)} in the later run{limit}: what holds"
            " there now is not known",
            width,
        )
    if not lines:
        return [*head, "nothing changed"]
    named = changes.findings[0].rule if changes.findings else ""
    return [*head, *lines, *([f"next: {program} history {visible(named, 120)}"] if named else [])]


def _finding_lines(one: FoundChange, width: int) -> list[str]:
    place = f": {visible(item_label(one.place), 80)}" if one.place else ""
    text = (
        f"{_severity(one.severity)}: {_nodes(one.hosts)}{place}: {visible(one.title, 200)}"
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
        return _labelled(
            "FACT", f"{_nodes(one.hosts)}: {_changed(one.fact, one.before, one.now)}", width
        )
    return _labelled(
        "FACT",
        f"{_nodes(one.hosts)}: first values of"
        f" {', '.join(visible(each.fact, 160) for each in facts)}; -o json has them",
        width,
    )


def _changed(fact: str, before: Any, now: Any) -> str:
    return f"{visible(fact, 160)}: {_value(before)} -> {_value(now)}"


def _value(value: Any) -> str:
    """A value as text; no value is (none), because a fact may have the text `none`."""
    return "(none)" if value is None else visible(brief(value), LONGEST_VALUE) or "(empty)"


def render_beginnings(rule: str, title: str, found: Sequence[Beginning], width: int) -> list[str]:
    """When the findings of a rule began, newest last."""
    lines = [*wrapped(f"{visible(rule, 120)}: {visible(title, 200)}", width), ""]
    for one in found:
        place = f": {visible(item_label(one.place), 80)}" if one.place else ""
        waived = ", waived" if one.verdict == "waived" else ""
        lines += _labelled(
            _when(one.started),
            f"{_nodes(one.hosts)}{place}: {_severity(one.severity)}{waived}, found"
            f" {visible(one.found, 200)}",
            width,
            18,
        )
        lines += _labelled("", f"run {visible(one.run, 80)}; {_state(one)}", width, 18)
        lines += [line for text in _came_with(one) for line in _labelled("", text, width, 18)]
    return lines


def _state(one: Beginning) -> str:
    end = (
        f"ended in run {visible(one.ended_in or '', 80)}"
        + (", where its rule was judged no longer" if one.ended != "gone" else "")
        if one.ended_in
        else "holds"
    )
    return (
        f"{end}; since the first look at {'this node' if len(one.hosts) == 1 else 'these nodes'}"
        if one.since_first_look
        else end
    )


def _came_with(one: Beginning) -> list[str]:
    if one.since_first_look:
        return []
    if not one.together:
        return ["no fact of the configuration changed with it"]
    lines = []
    for fact in one.together[:MOST_TOGETHER]:
        others = (
            f", and on {counted(fact.others, 'node')} without the finding" if fact.others else ""
        )
        lines.append(
            f"with it changed {_changed(fact.fact, fact.before, fact.now)} (on {fact.on} of"
            f" {counted(len(one.hosts), 'node')}{others})"
        )
    omitted = len(one.together) - MOST_TOGETHER
    return [
        *lines,
        *([f"and {counted(omitted, 'more fact')}: --format json has all"] if omitted > 0 else []),
    ]


def render_host(
    host: str,
    held: Sequence[Holding],
    happened: Sequence[Event],
    pasts: Sequence[OwnPast],
    width: int,
) -> list[str]:
    """What happened to a node, newest last, and what holds."""
    lines = [f"{visible(host, 200)}: {counted(len(held), 'finding')} now", ""]
    for event in happened:
        lines += _labelled(
            _when(event.started),
            f"{visible(event.what, 40)}: {visible(event.text, 400)}",
            width,
            18,
        )
    lines += [] if happened else ["nothing has changed since the history first saw it"]
    lines += ["", *(["holds now"] if held else [])]
    for (since, shown), places in _alike(held).items():
        items = fold_items(places)
        lines += _labelled(
            f"since {since}", shown.replace(_ITEMS, f": {items}" if items else "", 1), width, 18
        )
    return [*lines, *_pasts(pasts, width)]


def _alike(held: Sequence[Holding]) -> dict[tuple[str, str], list[str]]:
    """(day, line) -> things, of findings that differ in the thing alone; the worst first."""
    shown: dict[tuple[str, str], list[str]] = {}
    for one in sorted(
        held,
        key=lambda one: (
            SEVERITIES.index(one.severity) if one.severity in SEVERITIES else len(SEVERITIES)
        ),
    ):
        waived = ", waived" if one.verdict == "waived" else ""
        line = (
            f"{_severity(one.severity)}{waived}: {visible(one.title, 200)}{_ITEMS}"
            f" [{visible(one.rule, 120)}]"
        )
        shown.setdefault((_when(one.started)[:10], line), []).append(item_label(one.place))
    return shown


def render_watched(
    flapping: Sequence[Flapping],
    waivers: Sequence[EndingWaiver],
    pasts: Sequence[OwnPast],
    runs: int,
    days: int,
    width: int,
) -> list[str]:
    """The three lists, each with a heading, also if empty."""
    lines = wrapped(
        f"findings that came back at least twice within {runs} runs"
        + ("" if flapping else ": none"),
        width,
    )
    for one in flapping:
        place = f": {visible(item_label(one.place), 80)}" if one.place else ""
        now = "there now" if one.holds else "not there now"
        text = (
            f"{_severity(one.severity)}: {_nodes(one.hosts)}{place}: {visible(one.title, 200)}"
            f" [{visible(one.rule, 120)}], {now}"
        )
        lines += _labelled(f"{one.times} times", text, width)
    lines += ["", f"waivers that end within {counted(days, 'day')}" + ("" if waivers else ": none")]
    for waiver in waivers:
        text = (
            f"{_nodes(waiver.hosts)}: {visible(waiver.title, 200)} [{visible(waiver.rule, 120)}],"
            f" by {visible(waiver.by, 80)}: {visible(waiver.reason, 200)}"
        )
        lines += _labelled(visible(waiver.until, 10), text, width, 12)
    slower = [one for one in pasts if one.slower]
    return [
        *lines,
        "",
        "busbw below a node's own past" + ("" if slower else ": none"),
        *_pasts(slower, width),
    ]


def _pasts(pasts: Iterable[OwnPast], width: int) -> list[str]:
    lines = []
    for one in pasts:
        past = (
            f"{one.ratio:.2f} of the median {one.median_gb_s:.1f} of {one.earlier} earlier"
            if one.ratio is not None and one.median_gb_s is not None
            else "no past yet"
        )
        text = (
            f"{visible(one.host, 200)}: {visible(one.op, 80)}, {one.size_bytes:,} bytes,"
            f" {counted(one.ranks, 'rank')}: {one.busbw_gb_s:.1f} GB/s, {past}"
        )
        lines += _labelled("busbw", text, width)
    return lines


def _severity(text: str) -> str:
    """Severity of a finding; a file of somebody else may have any text there."""
    return visible(text, 20)


def _nodes(hosts: Sequence[str], longest: int = LONGEST_NODES) -> str:
    if hosts == ("",):
        return "the whole fleet"
    return shortened(fold_hosts(hosts), longest) + (
        f" ({len(hosts):,} nodes)" if len(hosts) > 1 else ""
    )


def _when(text: str) -> str:
    return visible(text, 40).replace("T", " ").removesuffix("Z")[:16]


def _labelled(label: str, text: str, width: int, column: int = LABEL + 2) -> list[str]:
    within = max(width - column, 20)
    lines = [part for line in wrapped(text, within) for part in broken(line, within).split("\n")]
    return [f"{label if not place else '':<{column}}{line}" for place, line in enumerate(lines)]
