"""Status and outcome of a rollout as text: one line for each state, equal nodes folded; then the outcome of each node. Values in, text out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unhang.base.nodeset import fold_hosts, shortened
from unhang.base.text import counted, visible, wrapped
from unhang.repair.rollout.bandwidth import describe_bandwidth, describe_before
from unhang.repair.rollout.status import step_now
from unhang.show.report.pasting import command_lines

LONGEST_LIST = 200
VALUE = 11  # columns before the value of a labelled line
ORDER = (
    "lost", "taken over", "no answer", "not released", "under way", "kept", "waiting",
    "refused", "withdrawn", "deferred", "drained by others", "released", "to come",
)  # fmt: skip


def render_status(status: Mapping[str, Any], width: int | None = None) -> str:
    """All of it. width: columns; None: no line is wrapped."""
    lines = [*describe_head(status), ""]
    for state in ORDER:
        rows = [row for row in status["hosts"] if row["state"] == state]
        lines += _state(state, rows) if rows else []
    lines += describe_waves(status)
    if status["controller"] is not None:
        lines += _fleet(status)
    lines = [part for line in lines for part in _fitted(line, width)]
    if command := status["undo"]:
        lines += ["", "to undo it (previews; --apply undoes it, --host NODES on these nodes alone):"]
        lines += [f"  {part}" for part in (command_lines(command, width - 2) if width else [command])]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _fitted(line: str, width: int | None) -> list[str]:
    """The line in parts; those of a labelled line are below its value."""
    return [line] if width is None or len(line) <= width else wrapped(line, width, VALUE if line.startswith("  ") else 2)


def describe_head(status: Mapping[str, Any]) -> Iterator[str]:
    """Whether the rollout has begun, is running, was stopped or has ended, in a few lines."""
    controller = status["controller"]
    if controller is None:
        yield f"rollout of run {status['run']}: not begun"
        return
    alive = {True: "under way", False: "its controller has died; the same command goes on", None: "under way, or its controller has died on another machine"}
    how = "ended" if status["ended"] else alive[status["controller"].get("alive")]
    yield f"rollout of run {status['run']}: {how}; controller {controller['number']} by {visible(controller['by'])}, began {controller['began']}"
    if status["stopped"]:
        yield f"stopped    {visible(status['stopped'])}"
    for line in status["torn"]:
        yield f"torn       {visible(line)}: a controller died while it wrote this; it did not happen"


def _state(state: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{state.upper()}: {counted(len(rows), 'node')}, {rows[0]['meaning']}"
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        what = step_now(row)
        versions = "; ".join(f"{role} {before} -> {row['wanted'].get(role, 'as it was')}" for role, before in row["before"].items()) if row["gone"] else ""
        gone = f"gone: {', '.join(row['gone'])}" if row["gone"] else ""
        key = (visible(row["why"]), what, versions, gone, ", ".join(sorted({boot.partition(",")[0] for boot in row["boots"]})), row["next"])
        before = visible(describe_before(row)) if row["smoke_before"]["why"] else ""
        alike.setdefault((*key, before), []).append(row)
    for (why, what, versions, gone, boots, after, before), same in alike.items():
        yield f"  where    {shortened(fold_hosts(row['host'] for row in same), LONGEST_LIST)}"
        pairs = [("why", why), ("now", what), ("versions", versions), ("found", gone), ("before", before)]
        pairs += [("measured", line) for line in describe_bandwidth(same, largest_only=True)]
        pairs += [("booted", boots), ("next", after)]
        yield from (f"  {name:<9}{value}" for name, value in pairs if value)
    yield ""


def describe_fleet(status: Mapping[str, Any]) -> list[str]:
    """The fleet before and after, in a few lines."""
    return list(_fleet(status))


def _fleet(status: Mapping[str, Any]) -> Iterator[str]:
    fleet = status["fleet"]
    found, gone = fleet["findings"]["found"], fleet["findings"]["gone"]
    proved = f"{fleet['proved_healthy']} of {counted(fleet['nodes'], 'node')} proved healthy"
    yield f"fleet: {proved}, {gone} of {counted(found, 'finding')} gone, {counted(fleet['boots'], 'boot')}"
    before = fleet["before"]
    yield f"  smoke test before the change: {before['passed']} passed, {before['failed']} failed, {before['not_measured']} not measured"
    yield from (f"  {line}" for line in describe_bandwidth(status["hosts"]))
    if status["person"]:
        hosts = {one["host"] for one in status["person"]}
        yield f"left to a person: {counted(len(status['person']), 'finding')} on {counted(len(hosts), 'node')}; see the plan"


def describe_waves(status: Mapping[str, Any]) -> list[str]:
    """The state of the nodes of each wave, a line for each."""
    states: dict[str, list[str]] = {}
    for row in status["hosts"]:
        states.setdefault(row["wave"], []).append(row["state"])
    counts = {name: ", ".join(f"{found.count(state)} {state}" for state in ORDER if state in found) for name, found in states.items()}
    return [f"{wave['name']}: {counts.get(wave['name'], '')}" for wave in status["waves"]]
