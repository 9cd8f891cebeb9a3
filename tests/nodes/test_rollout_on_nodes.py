"""playbooks/remediate.yml over the waves of a plan, on four booted nodes: audited, planned, rolled
out, proved."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time

import audits
import hardware
import pytest
from four_nodes import NAMES
from pinned_fleet import PINNED, REMEDIATE, untouched
from playbooks_on_nodes import planned_run, play, playing

from unhang.act.rollout.journal import read_journal
from unhang.act.rollout.rollout_state import replay

QUICK = {"unhang_come_up_timeout_s": 1, "unhang_smoke": False}


THREE = NAMES[:3]
DEADLINE_S = 840


@pytest.fixture
def planned(pinned):
    """Three nodes with a fault that a role repairs, audited, and their plan in the run folder."""
    return plan(pinned)


def plan(fleet):
    assert play(fleet, "playbooks/audit.yml", THREE, {}).code in (0, 2)
    options = ("--rule", PINNED, "--max-unavailable", "2", "--floor", "0")
    fleet.plan = planned_run(fleet, *options)
    assert waves(fleet) == [[THREE[0]], list(THREE[1:])]
    return fleet


def rollout(fleet, **more):
    return play(
        fleet,
        REMEDIATE,
        THREE,
        {},
        deadline_s=DEADLINE_S,
        unhang_plan=str(fleet.plan),
        **{**QUICK, **more},
    )


def node(fleet, name):
    return replay(read_journal(fleet.plan).entries).node(name)


def states(fleet):
    return {name: node(fleet, name).state for name in THREE}


def waves(fleet):
    return [wave["hosts"] for wave in json.loads((fleet.plan / "plan.json").read_text())["waves"]]


def locked(fleet, *names):
    return [
        name
        for name in names
        if "lock.json" in fleet.shell(name, "ls /var/lib/unhang 2>/dev/null || true")
    ]


def test_the_preview_of_a_plan_leaves_no_trace(planned):
    run = rollout(planned)
    assert run.code == 0
    assert untouched(planned, *THREE) == list(THREE)
    assert not (planned.plan / "journal.jsonl").exists()


def test_damage_is_seen_though_somebody_deletes_what_the_changed_node_has_stored(planned):
    canary = THREE[0]
    with playing(
        planned, REMEDIATE, THREE, {}, unhang_plan=str(planned.plan), unhang_apply=True, **QUICK
    ) as process:
        audits.wait_until(
            lambda: node(planned, canary).applied or process.poll() is not None,
            "the canary is changed",
            DEADLINE_S,
        )
    planned.shell(canary, "rm -rf /var/lib/unhang")
    planned.equip(canary, dataclasses.replace(hardware.H200X8, gpus=7, answers={"device_count": 7}))
    assert rollout(planned, unhang_apply=True).code != 0
    found = node(planned, canary)
    assert found.state == "lost", found
    assert "of the 8 GPUs of before, 7 are there" in found.why
    assert "its /var/lib/unhang was deleted" in found.why


@contextlib.contextmanager
def applying(fleet):
    """The rollout once its roles change the canary; ended by itself when the block ends."""
    with playing(
        fleet, REMEDIATE, THREE, {}, unhang_plan=str(fleet.plan), unhang_apply=True, **QUICK
    ) as process:
        audits.wait_until(
            lambda: node(fleet, THREE[0]).begun == "apply" or process.poll() is not None,
            "the roles begin",
            DEADLINE_S,
        )
        yield
        process.wait(DEADLINE_S)


def test_an_ssh_master_that_dies_in_the_roles_costs_at_most_the_same_command_again(planned):
    with applying(planned):
        for _ in range(20):
            planned.bed.run(["pkill", "-KILL", "-f", f"ssh: {planned.bed.folder}/sockets"])
            time.sleep(0.2)
    stopped = states(planned)
    # deferred: it died before the roles had changed anything
    assert stopped[THREE[0]] in ("released", "unfinished", "deferred")
    assert rollout(planned, unhang_apply=True).code == 0
    assert states(planned) == dict.fromkeys(THREE, "released")


FILLS = (
    "mkdir -p /var/lib/unhang && mount -t tmpfs -o size=1m none /var/lib/unhang && systemd-run -q"
    " --unit=fills sh -c 'until ls /var/lib/unhang/states/*/state.json; do sleep 0.01; done; head"
    " -c 2m /dev/zero >/var/lib/unhang/filled'"
)
EMPTIES = "umount /var/lib/unhang; rm -rf /var/lib/unhang"


def test_a_disk_that_fills_in_the_middle_of_the_roles_stops_everything_and_is_named(planned):
    planned.shell(THREE[0], FILLS, undo=EMPTIES)
    with applying(planned):
        pass
    found = node(planned, THREE[0])
    assert (found.state, found.stuck.partition(": ")[0]) == ("unfinished", "roll_back")
    planned.shell(THREE[0], "rm /var/lib/unhang/filled")
    assert rollout(planned, unhang_apply=True).code != 0
    found = node(planned, THREE[0])
    assert (found.state, found.why.partition(": ")[0]) == ("lost", "No space left on device")
    assert untouched(planned, *THREE[1:]) == list(THREE[1:])
