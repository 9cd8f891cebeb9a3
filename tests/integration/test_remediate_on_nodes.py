"""playbooks/remediate.yml on four booted nodes: previews, brings to the policy, proves by the audit, and stops at the first node that is not proved healthy."""

from __future__ import annotations

import json

import audits
import pytest
from four_nodes import NAMES
from hardware import consumer_gpus
from playbooks_on_nodes import play, playing
from role_plays import state_of

REMEDIATE = "playbooks/remediate.yml"
FIRST, SECOND, THIRD, FOURTH = NAMES
PINNED = "cuda-visible-devices-pinned"
BAD = "driver-545-23-08-p2p-deadlock"
ROLES = ["gpu_binding"]


@pytest.fixture
def pinned(fleet):
    """Four nodes on which every job is given GPU 0; and how they were before."""
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
    """What the newest run found, {(host, rule)}."""
    document = json.loads((fleet.work / "runs" / "latest" / "findings.json").read_text())
    return {(one["host"], one["rule"]) for one in document["findings"] if one["verdict"] == "fail"}


def proof(fleet, name):
    return json.loads((fleet.work / "runs" / "latest" / f"remediation-{name}.json").read_text())


def test_a_preview_shows_what_would_change_and_writes_nothing_then_the_fleet_is_brought_to_its_policy(pinned):
    preview = remediate(pinned)
    assert preview.code == 0
    assert preview.said.count("-CUDA_VISIBLE_DEVICES=0") == 4
    assert untouched(pinned, *NAMES) == list(NAMES)

    two = [FIRST, SECOND]
    acted = remediate(pinned, hosts=two, unhang_apply=True)
    assert acted.code == 0
    assert not {(name, PINNED) for name in two} & findings(pinned)
    assert all(PINNED in proof(pinned, name)["gone"] and proof(pinned, name)["healthy"] for name in two)
    assert [pinned.shell(name, "ls /var/lib/unhang").split() for name in two] == [["gpu_binding.json", "states"]] * 2


def stopped_after_the_first(fleet, run, reason):
    assert run.code != 0
    assert reason in run.said
    assert "# unhang set aside: CUDA_VISIBLE_DEVICES=0" in fleet.shell(FIRST, "cat /etc/environment")
    assert untouched(fleet, THIRD, FOURTH) == [THIRD, FOURTH]


def test_a_node_that_is_off_stops_the_run_before_the_third(pinned):
    pinned.power_off(SECOND)
    stopped_after_the_first(pinned, remediate(pinned, unhang_apply=True), f"{SECOND} is not proved healthy: unreachable")


def test_a_node_that_goes_off_while_the_first_is_at_work_stops_the_run_before_the_third(pinned):
    with playing(pinned, REMEDIATE, NAMES, {}, unhang_apply=True, unhang_roles=ROLES) as process:
        audits.wait_until(lambda: "lock" in pinned.shell(FIRST, "ls /var/lib/unhang 2>/dev/null || true"), "the first node is at work")
        pinned.power_off(SECOND)
        code = process.wait(audits.DEADLINE_S)
    said = (pinned.work / "playing.log").read_text()
    assert code != 0
    assert "UNREACHABLE" in said
    assert "# unhang set aside" in pinned.shell(FIRST, "cat /etc/environment")
    assert untouched(pinned, THIRD, FOURTH) == [THIRD, FOURTH]


def test_a_node_on_which_a_role_fails_stops_the_run_before_the_third(pinned):
    # A lock of another run: the role cannot have the node.
    holder = {"schema": "unhang/lock/1", "run": "somebody", "by": "ops@elsewhere", "since": "2026-11-20T07:00:00Z", "expires": "2999-01-01T00:00:00Z"}
    pinned.plant(SECOND, "/var/lib/unhang/lock.json", json.dumps(holder))
    run = remediate(pinned, unhang_apply=True)
    stopped_after_the_first(pinned, run, "found run somebody by ops@elsewhere at work on it")
    assert f"{SECOND} is not proved healthy" in run.said
    # Somebody knows that that run is over: its lock is taken, and freed in the end.
    assert remediate(pinned, hosts=[SECOND], unhang_apply=True, unhang_run="somebody").code == 0
    pinned.shell(SECOND, "test ! -e /var/lib/unhang/lock.json")


def test_a_node_that_is_not_healthy_afterwards_stops_the_run_before_the_third(pinned):
    pinned.equip(SECOND, consumer_gpus("NVIDIA GeForce RTX 3090", 4, "545.23.08"))
    run = remediate(pinned, unhang_apply=True)
    stopped_after_the_first(pinned, run, f"left: {BAD} (critical)")
    assert proof(pinned, FIRST)["healthy"]
    second = proof(pinned, SECOND)
    assert not second["healthy"]
    assert PINNED in second["gone"]


def test_a_policy_that_brings_in_a_known_bad_driver_is_not_applied(pinned):
    pinned.equip(FIRST, consumer_gpus("NVIDIA GeForce RTX 3090", 4, "535.154.05"))
    for apply in (False, True):
        run = remediate(pinned, {"driver": {"version": "545.23.08"}}, hosts=[FIRST], unhang_apply=apply)
        assert run.code != 0
        assert f"the policy of {FIRST} is not applied: Driver 545.23.08 deadlocks NCCL peer-to-peer between GPUs ({BAD})" in " ".join(run.said.split())
        assert untouched(pinned, FIRST) == [FIRST]
