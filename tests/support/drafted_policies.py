"""Runs that `unhang policy` reads, the command, and what a drafted policy pins."""

from __future__ import annotations

import copy
import json

from unhang.cli import main


def policy_of(draft):
    policy = {}
    for pin in draft.pins:
        policy.setdefault(pin.section, {})[pin.name] = pin.value
    return policy


def run_of(folder, nodes):
    """A run folder. nodes: {host: facts}."""
    (folder / "nodes").mkdir(parents=True)
    for host, facts in nodes.items():
        status = "ok" if facts else "unreachable"
        node = {
            "schema": "unhang/node/1",
            "host": host,
            "groups": ["training"],
            "policy": {},
            "status": status,
            "message": None,
            "facts": facts,
        }
        (folder / "nodes" / f"{host}.json").write_text(json.dumps(node))
    run = {
        "schema": "unhang/run/1",
        "id": folder.name,
        "started": "2026-11-20T17:57:45Z",
        "finished": "2026-11-20T17:58:00Z",
        "inventory": [],
        "limit": None,
    }
    controller = {"unhang": "0", "ansible_core": "0", "python": "3.11"}
    (folder / "run.json").write_text(
        json.dumps({**run, "hosts": list(nodes), "controller": controller, "policy_sources": []})
    )
    return folder


def changed(facts, change):
    """The facts with some sections changed."""
    facts = copy.deepcopy(facts)
    change(facts["sections"])
    return facts


def policy(capsys, *arguments):
    """(exit code, standard output, standard error) of `unhang policy`."""
    capsys.readouterr()
    code = main(["policy", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err
