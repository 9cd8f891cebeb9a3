"""What was undone, and by whom, is in the status of each run that it was about."""

from __future__ import annotations

import json

import pytest

from unhang.act.plan.plan_document import (
    HostPlan,
    Plan,
    PlanLimits,
    PlannedRun,
    Remedy,
    Wave,
    write_plan,
)
from unhang.act.rollout.conductor import begin
from unhang.act.rollout.journal import append, read_journal
from unhang.act.rollout.journal import begin as begin_journal
from unhang.act.rollout.status import exit_code, status_of
from unhang.act.rollout.status_table import render_status
from unhang.act.rollout.steps import BEGUN, DONE, FAILED, Entry
from unhang.act.rollout.undone import undone_of, undone_states
from unhang.core.errors import UserError
from unhang.core.run.own_runs import mark_as_own

NOW = "2026-11-23T22:00:00Z"
FIRST, SECOND = "20261120T070000Z-0123456789", "20261121T070000Z-abcdef0123"
UNDO = f"{FIRST}-undo"


def plan_of(run):
    return Plan(
        PlannedRun(run, NOW, NOW),
        NOW[:10],
        PlanLimits(1, 0, 2),
        tuple(
            HostPlan(host, f"{host}-boot", f"sha256:{'0' * 64}", (Remedy("kernel", {}, ("x",)),))
            for host in ("a", "b")
        ),
        (Wave("canary 1", ("a",)), Wave("wave 1", ("b",))),
    )


def released(host):
    yield Entry(NOW, host, "lock", DONE, 1, {"fencing": 1, "boot_id": "b1"})
    yield Entry(NOW, host, "apply", BEGUN, 1, {"boot_id": "b1"})
    applied = {"boot_id": "b1", "needs_reboot": False, "saved_state": "s1"}
    yield Entry(NOW, host, "apply", DONE, 1, applied)
    yield Entry(NOW, host, "release", DONE, 1, {"drained": False, "owned": False})


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Two rollouts, and an undo of the first with --through, which has brought back both on a."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for run in (FIRST, SECOND):
        folder = tmp_path / "runs" / run
        folder.mkdir(parents=True, mode=0o700)
        write_plan(folder, plan_of(run))
        epoch = begin_journal(folder, NOW, {"by": "ops"})
        for entry in (*released("a"), *released("b")):
            append(folder, epoch, entry)
        (folder / "run.json").write_text(json.dumps({"id": run}))
        mark_as_own(folder)
    undo = tmp_path / "runs" / FIRST / "undo"
    undo.mkdir(mode=0o700)
    rows = [
        {"id": "s2", "role": "kernel", "run": SECOND, "by": UNDO},
        {"id": "s1", "role": "gpu_driver", "run": FIRST, "by": UNDO},
    ]
    epoch = begin_journal(undo, NOW, {"by": "ops"})
    append(undo, epoch, Entry(NOW, "a", "apply", DONE, 1, {"boot_id": "b1", "undone": rows}))
    append(undo, epoch, Entry(NOW, "b", "apply", FAILED, 1, {"why": "x", "undone": rows}))
    return tmp_path / "runs"


def shown(folder, run):
    plan, undone = plan_of(run), undone_of(folder, run)
    return status_of(plan, read_journal(folder), "unhang remediate --undo RUN", undone=undone)


@pytest.mark.parametrize(("run", "role"), [(FIRST, "gpu_driver"), (SECOND, "kernel")])
def test_the_status_of_each_run_says_what_was_undone_and_by_whom(runs, run, role):
    status = shown(runs / run, run)
    rows = {row["host"]: row for row in status["hosts"]}
    assert rows["a"]["undone"] == f"{role} by {UNDO}, {NOW}"
    assert (rows["a"]["undo"], rows["b"]["undone"]) == ("", "")
    assert rows["b"]["undo"]
    assert f"undone   {role} by {UNDO}, {NOW}" in render_status(status)
    assert (rows["a"]["state"], rows["b"]["state"]) == ("undone", "released")
    assert "UNDONE: 1 node, what the rollout changed was undone\n" in render_status(status)
    assert (status["counts"], exit_code(status)) == ({"undone": 1, "released": 1}, 1)


def test_a_run_that_another_undo_has_brought_back_does_not_go_on(runs):
    with pytest.raises(UserError, match=f"the rollout was undone on 1 node by {UNDO}"):
        begin(runs / SECOND, ["a", "b"], {"by": "ops"}, lambda _: True, "")


def test_only_states_that_the_undo_itself_has_rolled_back_are_its_work():
    states = [
        {"id": "1", "role": "kernel", "run": FIRST, "status": "rolled_back", "rolled_back_by": "x"},
        {
            "id": "2",
            "role": "kernel",
            "run": FIRST,
            "status": "rolled_back",
            "rolled_back_by": UNDO,
        },
        {"id": "3", "role": "kernel", "run": FIRST, "status": "finished"},
        {"id": "4", "status": "broken"},
    ]
    assert undone_states(states, UNDO) == [{"id": "2", "role": "kernel", "run": FIRST, "by": UNDO}]
