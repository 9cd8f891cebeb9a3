"""Every machine without a fault that the tests have, and what a rule above info may not do there.
`unhang catalogue check` asks for the alarms in a checkout."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from gallery import Machine, alarms, applies_to, read_gallery
from healthy_nodes import HEALTHY
from public_machines import MACHINES, public_node

from unhang.audit.rules.examples import judge_fragments
from unhang.audit.rules.node_rules import NodeView, judge_rule, node_world
from unhang.core.run.documents import to_fragment

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
RECORDED = ("h200x1/node.json", "h100x2/facts.json", "h200x8/facts.json")
MOST = 4
PERSISTENCE_OFF = {"gpu-persistence-off": "right: it is off"}


@functools.cache
def gallery_machines():
    return read_gallery()


@functools.cache
def complete_machines():
    """Healthy and public machines on which every fact was read, so that nothing may stay open."""
    healthy = [Machine(name, "healthy", document(), {}) for name, document in HEALTHY.items()]
    public = [Machine(name, "public", public_node(name), PERSISTENCE_OFF if row.get("persistence") is False and row["count"] > 1 else {})
        for name, row in MACHINES.items()]  # fmt: skip
    return healthy + public


@functools.cache
def recorded_machines():
    documents = {path: json.loads((FIXTURES / path).read_text()) for path in RECORDED}
    documents["h200x4/node.json"] = json.loads((FIXTURES / "h200x4" / "node.json").read_text())[
        "facts"
    ]
    return [Machine(path, "recorded", document, {}) for path, document in documents.items()]


def alarms_on_healthy(rule, view):
    """One line at most: the healthy machines on which a rule above info finds something."""
    if rule.severity == "info":
        return []
    names = alarms(rule, [*gallery_machines(), *complete_machines(), *recorded_machines()], view)
    if rule.scope != "node":
        names = [
            machine.name
            for machine in (*gallery_machines(), *complete_machines())
            if any(applies_to(rule, [machine], view).values())
        ]
    return [f"finds something on healthy machines: {_shortened(names)}"] if names else []


def left_open_on_healthy(rule, view):
    """Lines about a rule above info that decides nothing where all was read."""
    if rule.severity == "info":
        return []
    names = [
        machine.name
        for machine in complete_machines()
        if "unknown" in verdicts(rule, machine, view)
    ]
    lines = (
        [f"is unknown on healthy machines of which all was read: {_shortened(names)}"]
        if names
        else []
    )
    everywhere = rule.scope == "node" and all(
        verdicts(rule, machine, view) == {"unknown"} for machine in gallery_machines()
    )
    return lines + (["is unknown on every machine of the gallery"] if everywhere else [])


def verdicts(rule, machine, view):
    """The verdicts of a rule on a machine, or on three that are alike."""
    sections = machine.document["sections"]
    if rule.scope != "node":
        return {judge_fragments(rule, [sections] * 3, view)}
    node = NodeView(machine.name, ("training",), {}, "ok", "", "", to_fragment(sections))
    return {one.verdict for one in judge_rule(rule, node_world(node, view))}


def _shortened(names):
    return ", ".join(names[:MOST]) + (" …" if len(names) > MOST else "")
