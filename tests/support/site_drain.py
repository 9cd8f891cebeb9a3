"""A site's own program for drain_command: a file beside it has the state of each node that a
scheduler would know."""

from __future__ import annotations

import json
import sys

HOOK = """#!/usr/bin/env python3
import json, pathlib, sys
step, node, run, reason = sys.argv[1:]
folder = pathlib.Path(__file__).parent
if step == "states":
    if (folder / "away").exists():
        sys.exit("the site's scheduler is away")
    known = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json") if path.stem != "hosts"}
    out = {name: f"{state['by']} ({state['reason']})" for name, state in known.items() if state["drained"]}
    print(json.dumps({"in_service": sorted(known.keys() - out.keys()), "out": out}))
    sys.exit()
place = pathlib.Path(__file__).with_name(f"{node}.json")
state = json.loads(place.read_text())
ours = state["reason"].startswith(f"unhang {run}: ")
if step == "drain" and (ours or not state["drained"]):
    state.update(drained=True, by="site", reason=reason)
if step == "release" and ours:
    state.update(drained=False, by="", reason="")
state["owned"] = state["reason"].startswith(f"unhang {run}: ")
place.write_text(json.dumps(state))
if (folder / "then").exists():
    then = json.loads((folder / "then").read_text())
    with (folder / "calls").open("a") as calls:
        print(step, node, file=calls)
    number = (folder / "calls").read_text().splitlines().count(f"{step} {node}")
    act = f"{step} {node}"
    for name, other in {**then.get(act, {}), **then.get(f"{act} {number}", {})}.items():
        (folder / f"{name}.json").write_text(json.dumps(other))
print(json.dumps(state))
"""
FREE = {"drained": False, "by": "", "reason": "", "jobs": [], "owned": False}


def install(folder, states):
    """The program with the state of each node, and the role's variables that name it. states:
    {node: differences from FREE}."""
    hook = folder / "site-drain"
    hook.write_text(HOOK)
    hook.chmod(0o755)
    for node, state in states.items():
        (folder / f"{node}.json").write_text(json.dumps({**FREE, **state}))
    return {
        "drain_adapter": "command",
        "drain_command": [sys.executable, str(hook)],
        "drain_command_states": True,
    }


def drained_then(folder, act, node):
    """Another user drains the node once this act was done, such as "release gpu001"."""
    state = {**FREE, "drained": True, "by": "alice", "reason": "bad DIMM"}
    (folder / "then").write_text(json.dumps({act: {node: state}}))


def started_then(folder, act, node):
    """Somebody ends the drain of a node once this act was done ("wait gpu001 2": for the second
    time), and a job starts on it."""
    (folder / "then").write_text(
        json.dumps(
            {act: {node: {**FREE, "jobs": [{"id": "4711", "user": "alice", "state": "RUNNING"}]}}}
        )
    )


def known(folder, node):
    """The current state of a node."""
    return json.loads((folder / f"{node}.json").read_text())
