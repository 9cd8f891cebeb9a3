"""The undo of a rollout: which nodes it is about, its plan, the boots that it needs, and who may
begin it. Values, and run folders with a journal."""

from __future__ import annotations

import dataclasses

import pytest

from unhang.act.plan.plan_document import (
    HostPlan,
    Plan,
    PlanLimits,
    PlannedRun,
    Reboot,
    Remedy,
    Wave,
    read_plan,
    write_plan,
)
from unhang.act.rollout import state_machine
from unhang.act.rollout.conductor import begin
from unhang.act.rollout.journal import append
from unhang.act.rollout.node_state import NodeState, follow
from unhang.act.rollout.rollout_state import RolloutState
from unhang.act.rollout.steps import BEGUN, DONE, ROLLOUT, Entry, Target
from unhang.act.rollout.undo import hosts_to_undo, undo_plan
from unhang.core.errors import UserError

NOW = "2026-11-23T22:00:00Z"
HOSTS = ("a", "b", "c", "d")
DRIVER = Remedy(
    "gpu_driver", {"driver": {"version": "580.1"}}, ("policy-driver-version",), "535.1", "580.1"
)
PLAN = Plan(
    PlannedRun("20261120T070000Z-0123456789", NOW, NOW),
    NOW[:10],
    PlanLimits(2, 1, 4),
    tuple(
        HostPlan(
            host,
            f"{host}-boot",
            f"sha256:{'0' * 64}",
            (DRIVER,),
            (Reboot("apply", "x"),),
            scheduler="slurm",
        )
        for host in HOSTS
    ),
    (Wave("canary 1", ("a",)), Wave("wave 1", ("b", "c", "d"))),
)


def standing(**nodes):
    return RolloutState(
        [wave.hosts for wave in PLAN.waves],
        [NodeState(host, **{"state": "released", **known}) for host, known in nodes.items()],
    )


CHANGED = {"changed": True, "applied": True}


def test_only_nodes_that_the_rollout_changed_and_nothing_brought_back_are_undone():
    known = standing(
        a=CHANGED,
        b={**CHANGED, "as_before": True, "state": "kept"},
        c={**CHANGED, "state": "lost"},
        d={"state": "deferred"},
    )
    assert hosts_to_undo(PLAN, known, undone=()) == ["a", "c"]
    assert hosts_to_undo(PLAN, known, undone=("a",)) == ["c"]
    assert hosts_to_undo(PLAN, known, undone=(), asked=("c",)) == ["c"]


WAITING = {"state": "waiting", "locked": True, "drained": True}


def test_a_rollout_that_still_holds_an_unchanged_node_is_not_undone_before_it_has_ended():
    known = standing(a=CHANGED, b=WAITING)
    with pytest.raises(
        UserError,
        match=(
            "it still has b locked or drained, and unchanged; .* first: unhang remediate"
            f" --end {PLAN.run.id}"
        ),
    ):
        hosts_to_undo(PLAN, known, undone=())
    known.take([Entry(NOW, "", ROLLOUT, DONE, 1, {"closed": "ended by ops"})])
    assert hosts_to_undo(PLAN, known, undone=()) == ["a"]


@pytest.mark.parametrize(
    "why", ["d was not changed", "b was rolled back by the rollout itself", "x is not in the plan"]
)
def test_a_named_node_that_cannot_be_undone_is_refused_with_the_reason(why):
    known = standing(a=CHANGED, b={**CHANGED, "as_before": True}, c=CHANGED)
    with pytest.raises(UserError, match=why):
        hosts_to_undo(PLAN, known, undone=(), asked=(why[0],))


def test_the_plan_has_the_waves_and_limits_of_the_rollout_and_may_boot_twice(tmp_path):
    plan = undo_plan(PLAN, ["a", "c"], 1, NOW)
    assert [(wave.name, wave.hosts) for wave in plan.waves] == [
        ("canary 1", ("a",)),
        ("wave 1", ("c",)),
    ]
    assert (plan.limits.max_unavailable, plan.limits.floor) == (2, 1)
    assert (plan.undoes, plan.run.id) == (PLAN.run.id, f"{PLAN.run.id}-undo")
    entry = plan.by_host["c"]
    assert (entry.roles, entry.remedies[0].before, entry.remedies[0].after) == (
        ["undo"],
        "gpu_driver 580.1",
        "gpu_driver 535.1",
    )
    assert [one.step for one in entry.reboots] == ["apply", "apply", "rollback"]
    assert entry.scheduler == "slurm"
    write_plan(tmp_path, plan)
    assert read_plan(tmp_path) == plan


def through(node, *rows):
    for step, status, evidence in rows:
        node = follow(node, Entry(NOW, "a", step, status, 1, evidence), 1)
    return node


UNTIL_APPLIED = [
    ("lock", DONE, {"fencing": 1, "boot_id": "b1"}),
    ("drain", DONE, {"drained": True, "owned": True}),
    ("wait", DONE, {"jobs": []}),
    ("apply", BEGUN, {"boot_id": "b1"}),
    ("apply", DONE, {"boot_id": "b1", "needs_reboot": True}),
    ("reboot", BEGUN, {"boot_id": "b1"}),
]


def test_a_node_is_booted_again_where_packages_waited_for_the_restored_kernel():
    target = Target("a", None, 2, {"kernel": "old", "driver": "535.1"})
    node = through(NodeState("a", epoch=1), *UNTIL_APPLIED)
    booted = {
        "boot_id": "b2",
        "running": {"kernel": "old", "driver": "580.1"},
        "needs_reboot": True,
    }
    order = state_machine.Order("a", "reboot", 1, "b1", 1)
    assert state_machine.judge(order, state_machine.StepResult("ok", booted), target)[0] == DONE
    node = through(node, ("reboot", DONE, booted))
    again = state_machine.next_order(node, target, 1)
    assert (again.step, again.boot_id, again.reboots_left) == ("reboot", "b2", 1)
    node = through(
        node,
        ("reboot", BEGUN, {"boot_id": "b2"}),
        ("reboot", DONE, {"boot_id": "b3", "needs_reboot": False}),
    )
    assert state_machine.next_order(node, target, 1).step == "audit"


def test_the_last_boot_has_to_bring_back_what_ran_before_the_rollout():
    target = Target("a", None, 2, {"driver": "535.1"})
    answer = state_machine.StepResult(
        "ok", {"boot_id": "b2", "running": {"driver": "580.1"}, "needs_reboot": False}
    )
    status, evidence = state_machine.judge(
        state_machine.Order("a", "reboot", 1, "b1", 1), answer, target
    )
    assert (status, evidence["why"]) == (
        "failed",
        "after the reboot driver is 580.1, not 535.1",
    )


def test_a_rollback_boots_again_where_the_rest_was_restored_after_its_first_boot():
    begun = frozenset(("lock", "drain", "wait"))
    node = NodeState(
        "a",
        1,
        boot_id="b1",
        done=begun,
        changed=True,
        failure="x",
        rolled_back=True,
        booted_back=False,
        leaves="b1",
    )
    node = through(
        node,
        ("reboot_back", BEGUN, {"boot_id": "b1"}),
        ("reboot_back", DONE, {"boot_id": "b2", "needs_reboot": True}),
    )
    again = state_machine.next_order(node, Target("a"), 1)
    assert (again.step, again.boot_id, again.reboots_left) == ("reboot_back", "b2", 1)
    node = through(
        node, ("reboot_back", BEGUN, {"boot_id": "b2"}), ("reboot_back", DONE, {"boot_id": "b3"})
    )
    assert state_machine.next_order(node, Target("a"), 1).step == "audit_back"


@pytest.fixture
def folders(tmp_path):
    """(run folder of the rollout, folder of its undo), with their plans."""
    write_plan(tmp_path, PLAN)
    folder = tmp_path / "undo"
    folder.mkdir()
    write_plan(folder, undo_plan(PLAN, ["a"], 1, NOW))
    return tmp_path, folder


def begun(folder, is_over=True):
    return begin(folder, HOSTS, {"by": "ops"}, lambda _holder: is_over, "")


def test_an_undo_does_not_begin_while_a_controller_may_be_at_work_on_the_rollout(folders):
    base, undo = folders
    begun(base)
    with pytest.raises(UserError, match="another controller works on the rollout"):
        begun(undo, is_over=False)
    assert begun(undo)["epoch"] == 1


def test_a_rollout_that_is_undone_does_not_go_on(folders):
    base, undo = folders
    epoch = begun(base)["epoch"]
    append(base, epoch, Entry(NOW, "", ROLLOUT, DONE, epoch))
    begun(undo)
    with pytest.raises(UserError, match="undid the rollout"):
        begun(base)


def test_a_plan_that_was_made_for_an_undo_is_read_as_no_other(tmp_path):
    write_plan(tmp_path, dataclasses.replace(PLAN))
    assert read_plan(tmp_path).undoes == ""


def test_a_node_on_which_a_later_run_changed_the_same_is_given_back_unchanged(tmp_path):
    refused = {"why": "found state x of run later", "untouched": True, "free": True}
    node = through(NodeState("a", epoch=1), *UNTIL_APPLIED[:4], ("apply", "failed", refused))
    assert not node.changed
    order = state_machine.next_order(node, Target("a"), 1)
    assert order.step == "release"
    assert "found state x of run later" in order.why


def test_an_undo_through_later_runs_is_in_its_plan(tmp_path):
    write_plan(tmp_path, undo_plan(PLAN, ["a"], 1, NOW, through=True))
    assert read_plan(tmp_path).through
