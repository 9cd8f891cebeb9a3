"""A site's own program for drain_command: what a scheduler would know of each node is kept in a file beside it."""

from __future__ import annotations

import json
import sys

HOOK = """#!/usr/bin/env python3
import json, pathlib, sys
step, node, run, reason = sys.argv[1:]
place = pathlib.Path(__file__).with_name(f"{node}.json")
state = json.loads(place.read_text())
ours = state["reason"].startswith(f"unhang {run}: ")
if step == "drain" and (ours or not state["drained"]):
    state.update(drained=True, by="site", reason=reason)
if step == "release" and ours:
    state.update(drained=False, by="", reason="")
state["owned"] = state["reason"].startswith(f"unhang {run}: ")
place.write_text(json.dumps(state))
print(json.dumps(state))
"""
FREE = {"drained": False, "by": "", "reason": "", "jobs": [], "owned": False}


def install(folder, states):
    """The program, with what is known of each node; the role's variables that name it. states: {node: what differs from FREE}."""
    hook = folder / "site-drain"
    hook.write_text(HOOK)
    hook.chmod(0o755)
    for node, state in states.items():
        (folder / f"{node}.json").write_text(json.dumps({**FREE, **state}))
    return {"drain_adapter": "command", "drain_command": [sys.executable, str(hook)]}


def known(folder, node):
    """What it knows of a node now."""
    return json.loads((folder / f"{node}.json").read_text())
