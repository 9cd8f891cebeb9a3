"""Status and outcome of a rollout as text: one line for each state, equal nodes folded; then the
outcome of each node. Values in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from unhang.act.rollout.bandwidth import describe_bandwidth
from unhang.act.rollout.status import LOST_JOURNAL, step_now
from unhang.act.rollout.steps import (
    KEPT,
    LOST,
    POSTPONED,
    RELEASED,
    SOAK,
    TAKEN_OVER,
    TO_COME,
    UNDONE,
    UNFINISHED,
    WAITING,
)
from unhang.core.command_lines import command_lines
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.text import counted, visible, wrapped

LONGEST_LIST = 200
VALUE = 11  # columns before the value of a labelled line
ORDER = (LOST, UNFINISHED, KEPT, TAKEN_OVER, UNDONE, WAITING, POSTPONED, RELEASED, TO_COME)


def render_status(status: Mapping[str, Any], width: int | None = None) -> str:
    """All of it. width: columns; None: no line is wrapped."""
    lines = [*describe_head(status), ""]
    for state in ORDER:
        rows = [row for row in status["hosts"] if row["state"] == state]
        lines += _state(state, rows) if rows else []
    lines += describe_waves(status)
    if status["controller"] is not None:
        lines += describe_fleet(status)
    lines = [part for line in lines for part in _fitted(line, width)]
    if command := status["undo"]:
        lines += [
            "",
            "to undo it (previews; --apply undoes it, --host NODES on these nodes alone):",
        ]
        lines += [
            f"  {part}" for part in (command_lines(command, width - 2) if width else [command])
        ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _fitted(line: str, width: int | None) -> list[str]:
    """The line in parts; those of a labelled line are below its value."""
    return (
        [line]
        if width is None or len(line) <= width
        else wrapped(line, width, VALUE if line.startswith("  ") else 2)
    )


def describe_head(status: Mapping[str, Any]) -> Iterator[str]:
    """Whether the rollout has begun, is running, was stopped or has ended, in a few lines."""
    controller = status["controller"]
    lost = [line for line in status["torn"] if line.startswith(LOST_JOURNAL)]
    if controller is None and lost:
        yield (
            f"rollout of run {status['run']}: it has begun, and what it did is known to its nodes"
            " alone"
        )
    elif controller is None:
        yield f"rollout of run {status['run']}: not begun"
    if controller is None:
        yield from (f"lost       {visible(line)}" for line in lost)
        return
    yield f"rollout of run {status['run']}: {_how(status)}"
    yield f"typed by   {visible(controller['by'])}, {controller['began']}"
    if status["stopped"]:
        yield f"stopped    {visible(status['stopped'])}"
    if status["policy_edited"]:
        yield f"policy     {visible(status['policy_edited'])}"
    for line in lost:
        yield f"lost       {visible(line)}"
    for line in (line for line in status["torn"] if line not in lost):
        yield (
            f"torn       {visible(line)}: a controller died while it wrote this; it did not happen"
        )


def _how(status: Mapping[str, Any]) -> str:
    """What is happening, on which nodes, and until when."""
    hosts = status["hosts"]
    if soaking := [row for row in hosts if row["step"] == SOAK]:
        waves = list(dict.fromkeys(row["wave"] for row in hosts if row["state"] == TO_COME))
        then = f"and {waves[0]} begins" if waves else "and it is over"
        until = soaking[0]["until"]
        return (
            f"{_hosts(soaking)} soaks until {until} (back in service), then is asked again, {then};"
            " if no command waits for that, give it again"
        )
    if status["closed"]:
        return f"{visible(status['closed'])}, for good"
    if status["ended"]:
        waiting = [row for row in hosts if row["state"] == WAITING]
        return (
            f"{_hosts(waiting)} waits for jobs; the same command goes on"
            if waiting
            else "over for now; each node's next step is below"
        )
    at_work = [row for row in hosts if row["step"]]
    where = f", on {_hosts(at_work)}" if at_work else ""
    alive = status["controller"].get("alive")
    if alive is None:
        return (
            "begun on another machine, so it is not seen here whether the command still runs"
            f" there{where}; if not, give it again"
        )
    return (
        f"running{where}"
        if alive
        else f"interrupted{where}: the command was ended or killed; give it again, and it goes on"
    )


def _hosts(rows: Iterable[Mapping[str, Any]]) -> str:
    return shortened(fold_hosts(row["host"] for row in rows), LONGEST_LIST)


def _state(state: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    yield (
        f"{state.upper()}: {counted(len(rows), 'node')},"
        f" {'; '.join(dict.fromkeys(row['meaning'] for row in rows))}"
    )
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        what = step_now(row)
        versions = versions_of(row)
        gone = f"gone: {', '.join(row['gone'])}" if row["gone"] else ""
        undone = row["undone"]
        key = (visible(row["why"]), what, versions, gone, undone, _boots(row["boots"]), row["next"])
        alike.setdefault(key, []).append(row)
    for (why, what, versions, gone, undone, boots, after), same in alike.items():
        yield f"  where    {shortened(fold_hosts(row['host'] for row in same), LONGEST_LIST)}"
        pairs = [
            ("why", why),
            ("now", what),
            ("versions", versions),
            ("found", gone),
            ("undone", undone),
        ]
        pairs += [("measured", line) for line in describe_bandwidth(same, largest_only=True)]
        pairs += [("rebooted", boots), ("next", after)]
        yield from (f"  {name:<9}{value}" for name, value in pairs if value)
    yield ""


def versions_of(row: Mapping[str, Any]) -> str:
    """gpu_driver 550.54.15 -> 580.65.06, of a node whose findings are gone; else ""."""
    before = row["before"].items() if row["gone"] else ()
    return "; ".join(
        f"{role} {was} -> {row['wanted'].get(role, 'as it was')}" for role, was in before
    )


def _boots(boots: Sequence[str]) -> str:
    """once (reboot); twice (trial boot, reboot)."""
    often = {0: "", 1: "once", 2: "twice"}.get(len(boots), f"{len(boots)} times")
    return f"{often} ({', '.join(boot.partition(',')[0] for boot in boots)})" if boots else ""


def describe_fleet(status: Mapping[str, Any]) -> Iterator[str]:
    fleet = status["fleet"]
    found, gone = fleet["findings"]["found"], fleet["findings"]["gone"]
    proved = f"{fleet['proved_healthy']} of {counted(fleet['nodes'], 'node')} proved healthy"
    yield (
        f"fleet: {proved}, {gone} of {counted(found, 'finding')} gone,"
        f" {counted(fleet['boots'], 'boot')}"
    )
    yield from (f"  {line}" for line in describe_bandwidth(status["hosts"]))
    if status["person"]:
        hosts = {one["host"] for one in status["person"]}
        yield (
            f"left to a person: {counted(len(status['person']), 'finding')} on"
            f" {counted(len(hosts), 'node')}; see the plan"
        )


def describe_waves(status: Mapping[str, Any]) -> list[str]:
    """The state of the nodes of each wave, a line for each."""
    states: dict[str, list[str]] = {}
    for row in status["hosts"]:
        states.setdefault(row["wave"], []).append(row["state"])
    counts = {
        name: ", ".join(f"{found.count(state)} {state}" for state in ORDER if state in found)
        for name, found in states.items()
    }
    return [f"{wave['name']}: {counts.get(wave['name'], '')}" for wave in status["waves"]]
