"""Every machine without a fault that the tests have, and what a rule above info may not do there.
`unhang catalogue check` asks for the alarms in a checkout."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from gallery import Machine, alarms, applies_to, read_gallery
from healthy_nodes import HEALTHY
from public_machines import MACHINES, public_node

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


def _shortened(names):
    return ", ".join(names[:MOST]) + (" …" if len(names) > MOST else "")
