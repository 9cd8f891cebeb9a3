"""Four nodes with a fault that a role repairs, and playbooks/remediate.yml for them."""

from __future__ import annotations

import json

import pytest
from four_nodes import NAMES
from playbooks_on_nodes import play
from role_plays import state_of

REMEDIATE = "playbooks/remediate.yml"
PINNED = "cuda-visible-devices-pinned"
ROLES = ["gpu_binding"]


@pytest.fixture
def pinned(fleet):
    """Four nodes on which every job gets GPU 0; and their state before."""
    for name in NAMES:
        fleet.plant(name, "/etc/environment", "SITE=1\nCUDA_VISIBLE_DEVICES=0\n")
        fleet.undo.callback(fleet.shell, name, "rm -rf /var/lib/unhang")
    fleet.before = {name: state_of(fleet, name) for name in NAMES}
    return fleet


def remediate(fleet, policy=None, hosts=NAMES, **more):
    return play(fleet, REMEDIATE, hosts, policy or {}, **{"unhang_roles": ROLES, **more})


def untouched(fleet, *names):
    return [name for name in names if state_of(fleet, name) == fleet.before[name]]


def findings(fleet):
    """Findings of the newest run, {(host, rule)}."""
    document = json.loads((fleet.work / "runs" / "latest" / "findings.json").read_text())
    return {(one["host"], one["rule"]) for one in document["findings"] if one["verdict"] == "fail"}


def proof(fleet, name):
    return json.loads((fleet.work / "runs" / "latest" / f"remediation-{name}.json").read_text())
