"""The status and the outcome of a rollout as text: one line per way to stand, equal nodes folded; then what each node came to. Text in, text out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unhang.nodeset import fold_hosts, shortened
from unhang.text import counted, visible

LONGEST_LIST = 200
ORDER = ("lost", "taken over", "no answer", "not released", "under way", "kept", "refused", "withdrawn", "deferred", "held", "released", "to come")


def render_status(status: Mapping[str, Any], undo: str = "") -> str:
    """All of it. undo: the command that takes a host's change back, with HOST and STATE in it; "" for none."""
    lines = [*_head(status), ""]
    for state in ORDER:
        rows = [row for row in status["hosts"] if row["state"] == state]
        lines += _state(state, rows) if rows else []
    lines += [f"wave {_wave(status, wave)}" for wave in status["waves"]]
    if undo and (changed := [row for row in status["hosts"] if row["saved_state"]]):
        lines += ["", "to take it back, node by node:"]
        lines += [f"  {undo.replace('HOST', row['host']).replace('STATE', row['saved_state'])}" for row in changed]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(status: Mapping[str, Any]) -> Iterator[str]:
    controller = status["controller"]
    if controller is None:
        yield f"rollout of run {status['run']}: not begun"
        return
    how = "ended" if status["ended"] else "under way, or its controller has died"
    yield f"rollout of run {status['run']}: {how}; controller {controller['number']} by {visible(controller['by'])}, began {controller['began']}"
    if status["stopped"]:
        yield f"stopped    {visible(status['stopped'])}"
    for line in status["torn"]:
        yield f"torn       {visible(line)}: a controller died while it wrote this; it did not happen"


def _state(state: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{state.upper()}: {counted(len(rows), 'node')}, {rows[0]['meaning']}"
    alike: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        what = f"in step {row['step']} since {row['since']}" if row["step"] else ""
        versions = "; ".join(f"{role} {before} -> {row['wanted'].get(role, 'as it was')}" for role, before in row["before"].items()) if row["gone"] else ""
        gone = f"gone: {', '.join(row['gone'])}" if row["gone"] else ""
        key = (visible(row["why"]), what, versions, gone, ", ".join(sorted({boot.partition(",")[0] for boot in row["boots"]})), row["next"])
        alike.setdefault(key, []).append(row["host"])
    for (why, what, versions, gone, boots, after), hosts in alike.items():
        yield f"  where    {shortened(fold_hosts(hosts), LONGEST_LIST)}"
        pairs = (("why", why), ("now", what), ("versions", versions), ("found", gone), ("boots", boots), ("next", after))
        yield from (f"  {name:<9}{value}" for name, value in pairs if value)
    yield ""


def _wave(status: Mapping[str, Any], wave: Mapping[str, Any]) -> str:
    states = [row["state"] for row in status["hosts"] if row["host"] in wave["hosts"]]
    told = ", ".join(f"{states.count(state)} {state}" for state in ORDER if state in states)
    return f"{wave['name']}: {told}"
