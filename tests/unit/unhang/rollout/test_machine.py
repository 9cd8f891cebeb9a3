"""What a node needs next, and what counts as done: the decisions of a rollout, one at a time."""

from __future__ import annotations

import pytest

from unhang.rollout.machine import judge, may_act, next_order
from unhang.rollout.node_state import NodeState
from unhang.rollout.standing import replay
from unhang.rollout.steps import BEGUN, DONE, FAILED, ROLLOUT, STEPS, Entry, Order, StepResult, Target

AT, HOST = "2026-11-20T07:00:00Z", "gpu001"
TARGET = Target(HOST, "b1", 1, {"driver": "580.95.05"})
GOOD = {
    "lock": {"fencing": 4, "boot_id": "b1"},
    "drain": {"drained": True, "owned": True},
    "wait": {"jobs": []},
    "save": {},
    "apply": {"boot_id": "b1", "needs_reboot": True},
    "reboot": {"boot_id": "b2", "running": {"driver": "580.95.05"}},
    **{step: {"boot_id": "b2", "healthy": True} for step in ("audit", "smoke_alone", "smoke_together")},
    "release": {"drained": False, "owned": False},
    "roll_back": {"boot_id": "b2", "needs_reboot": True},
    "reboot_back": {"boot_id": "b3"},
    "audit_back": {"boot_id": "b3", "healthy": True},
    "keep": {},
}


def journal(*results):
    """The first controller's entries. results: (step, what came of it), None for one that was begun and has no end."""
    entries = [Entry(AT, "", ROLLOUT, BEGUN, 1)]
    for step, result in results:
        order = next_order(replay(entries).node(HOST), TARGET, 1)
        assert order is not None
        assert order.step == step
        entries.append(Entry(AT, HOST, step, BEGUN, order.token, {"boot_id": order.boot_id}))
        if result is not None:
            status, evidence = judge(order, result, TARGET)
            entries.append(Entry(AT, HOST, step, status, order.token, evidence))
    return entries


def well(*steps):
    return [(step, StepResult("ok", GOOD[step])) for step in steps]


def after(entries, *more):
    """What the next controller does."""
    entries = [*entries, Entry(AT, "", ROLLOUT, BEGUN, 2), *more]
    return next_order(replay(entries).node(HOST), TARGET, 2)


FORWARD = ("lock", "drain", "wait", "save", "apply", "reboot", "audit", "smoke_alone", "smoke_together", "release")
BACK = ("roll_back", "reboot_back", "audit_back", "keep")


def test_a_node_that_is_proved_goes_through_every_step_and_is_given_back():
    node = replay(journal(*well(*FORWARD))).node(HOST)
    assert (node.state, node.boots) == ("released", (("reboot", "b1"),))
    assert next_order(node, TARGET, 1) is None


@pytest.mark.parametrize("bad", FORWARD[4:9])
def test_a_node_that_is_not_proved_is_brought_back_and_kept(bad):
    steps = FORWARD[: FORWARD.index(bad)]
    entries = journal(*well(*steps), (bad, StepResult("failed", {"why": "it broke"})), *well(*BACK))
    node = replay(entries).node(HOST)
    assert (node.state, node.why) == ("kept", f"{bad}: it broke")
    assert node.out_of_service


@pytest.mark.parametrize("bad", BACK)
def test_a_node_that_is_not_brought_back_is_lost(bad):
    back = BACK[: BACK.index(bad)]
    failed = [*well(*FORWARD[:6]), ("audit", StepResult("failed", {"why": "it broke"})), *well(*back), (bad, StepResult("failed", {"why": "worse"}))]
    node = replay(journal(*failed, *([] if bad == "keep" else well("keep")))).node(HOST)
    assert (node.state, node.why) == ("lost", f"audit: it broke; {bad}: worse")
    assert node.lost


@pytest.mark.parametrize("killed", FORWARD)
def test_the_next_controller_locks_first_and_then_goes_on_with_what_had_no_end(killed):
    entries = journal(*well(*FORWARD[: FORWARD.index(killed)]), (killed, None))
    assert after(entries).step == "lock"
    boot = "b2" if STEPS.index(killed) > STEPS.index("reboot") else "b1"
    taken = [Entry(AT, HOST, "lock", BEGUN, 4), Entry(AT, HOST, "lock", DONE, 5, {"fencing": 5, "boot_id": boot})]
    again = [entry for step in ("drain", "wait") for entry in (Entry(AT, HOST, step, BEGUN, 5), Entry(AT, HOST, step, DONE, 5, GOOD[step]))]
    order = after(entries, *taken) if killed == "release" else after(entries, *taken, *again)
    assert order.token == 5
    assert order.step == {"lock": "save", "drain": "save", "wait": "save"}.get(killed, killed)


@pytest.mark.parametrize("seen", ["b1", "b2"])
def test_a_reboot_that_was_ordered_is_ordered_for_the_same_boot_again_and_counted_once(seen):
    entries = journal(*well(*FORWARD[:5]), ("reboot", None))
    taken = [Entry(AT, HOST, "lock", BEGUN, 4), Entry(AT, HOST, "lock", DONE, 5, {"fencing": 5, "boot_id": seen})]
    again = [Entry(AT, HOST, step, DONE, 5, GOOD[step]) for step in ("drain", "wait")]
    order = after(entries, *taken, *again)
    assert (order.step, order.boot_id, order.reboots_left) == ("reboot", "b1", 1)
    assert may_act(order) is None


def test_a_reboot_beyond_the_plan_is_not_made():
    entries = journal(*well(*FORWARD[:4]), ("apply", StepResult("ok", {"boot_id": "b2", "needs_reboot": True})))  # its trial boot was the one of the plan
    order = next_order(replay(entries).node(HOST), TARGET, 1)
    assert order.step == "reboot"
    assert "expected a reboot that the plan allows, found none left" in may_act(order)


@pytest.mark.parametrize(
    ("step", "evidence", "found"),
    [
        ("reboot", {"boot_id": "b1", "running": {}}, "found the same: the node did not reboot"),
        ("reboot", {"boot_id": "b2", "running": {"driver": "535.1"}}, "expected after the reboot driver 580.95.05, found 535.1"),
        ("reboot", {}, "expected boot_id in the answer to reboot, found None"),
        ("audit", {"boot_id": "b2", "healthy": True}, "the node booted while it was proved"),
        ("audit", {"boot_id": "b1", "healthy": "yes"}, "expected healthy in the answer to audit, found 'yes'"),
        ("smoke_alone", {"boot_id": "b1", "healthy": False, "why": "gpu001: its links are slow"}, "gpu001: its links are slow"),
        ("wait", {"jobs": ["4711"]}, "expected no jobs on the node, found 4711"),
        ("drain", {"drained": False, "owned": False, "reason": "down"}, "found it in service: down"),
        ("release", {"drained": True, "owned": True}, "still drained by this rollout"),
        ("release", {"drained": True, "owned": False}, "expected to be told who has drained the node"),
    ],
)
def test_ok_without_the_evidence_has_failed(step, evidence, found):
    status, kept = judge(Order(HOST, step, 4, "b1", 1), StepResult("ok", evidence), TARGET)
    assert status == FAILED
    assert found in kept["why"]


def test_a_node_that_somebody_else_drained_is_given_back_without_a_change():
    entries = journal(*well("lock"), ("drain", StepResult("ok", {"drained": True, "owned": False, "by": "ops", "reason": "dimm"})))
    order = next_order(replay(entries).node(HOST), TARGET, 1)
    assert order.step == "release"
    assert "expected a node that nobody else has drained, found ops: dimm" in order.why


def test_a_node_that_has_booted_since_the_plan_is_given_back_without_a_change():
    entries = journal(("lock", StepResult("ok", {"fencing": 4, "boot_id": "b9"})))
    order = next_order(replay(entries).node(HOST), TARGET, 1)
    assert (order.step, "found b9: audit the node and make a new plan" in order.why) == ("release", True)


def test_a_plan_that_is_not_good_for_the_node_any_more_touches_nothing():
    stale = Target(HOST, "b1", 1, refused="expected kernel.release 6.1, found 6.5")
    assert next_order(NodeState(HOST), stale, 1) is None


def test_nothing_is_asked_of_a_node_that_did_not_answer_until_the_next_controller():
    entries = journal(*well(*FORWARD[:4]), ("apply", StepResult("silent", {"why": "unreachable"})))
    assert next_order(replay(entries).node(HOST), TARGET, 1) is None
    assert after(entries).step == "lock"


def test_a_node_that_another_run_has_taken_is_left_to_it_for_good():
    entries = journal(*well(*FORWARD[:4]), ("apply", StepResult("fenced", {"why": "its number is 9"})))
    assert replay(entries).node(HOST).state == "taken over"
    assert after(entries) is None
