"""The decisions of a rollout, one at a time: the next step of a node, and whether a step is
done."""

from __future__ import annotations

import dataclasses

import pytest
from case_rows import case_rows

from unhang.act.rollout.node_state import NodeState, is_proved
from unhang.act.rollout.rollout_state import replay
from unhang.act.rollout.state_machine import judge, may_act, next_order
from unhang.act.rollout.steps import (
    BEGUN,
    DONE,
    FAILED,
    ROLLOUT,
    STEPS,
    Entry,
    Order,
    StepResult,
    Target,
)

ROWS = case_rows(__file__)

AT, HOST = "2026-11-20T07:00:00Z", "gpu001"
TARGET = Target(HOST, "b1", 1, {"driver": "580.95.05"})
GOOD = {
    "lock": {"fencing": 4, "boot_id": "b1"},
    "drain": {"drained": True, "owned": True},
    "wait": {"jobs": []},
    "save": {},
    "apply": {"boot_id": "b1", "needs_reboot": True},
    "reboot": {"boot_id": "b2", "running": {"driver": "580.95.05"}},
    **{
        step: {"boot_id": "b2", "healthy": True}
        for step in ("audit", "smoke_alone", "smoke_together", "audit_again")
    },
    "release": {"boot_id": "b2", "drained": False, "owned": False},
    "roll_back": {"boot_id": "b2", "needs_reboot": True},
    "reboot_back": {"boot_id": "b3"},
    "audit_back": {"boot_id": "b3", "healthy": True},
    "keep": {},
}


def journal(*results):
    """The first controller's entries. results: (step, what came of it), None for one that was begun
    and has no end."""
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


FORWARD = (
    "lock",
    "drain",
    "wait",
    "save",
    "apply",
    "reboot",
    "audit",
    "smoke_alone",
    "smoke_together",
    "audit_again",
    "release",
)
BACK = ("roll_back", "reboot_back", "audit_back", "keep")


def test_a_node_that_is_proved_goes_through_every_step_and_is_released():
    node = replay(journal(*well(*FORWARD))).node(HOST)
    assert (node.state, node.boots) == ("released", (("reboot", "b1"),))
    assert next_order(node, TARGET, 1) is None


@pytest.mark.parametrize("bad", FORWARD[4:10])
def test_a_node_that_is_not_proved_is_brought_back_and_kept(bad):
    steps = FORWARD[: FORWARD.index(bad)]
    entries = journal(*well(*steps), (bad, StepResult("failed", {"why": "it broke"})), *well(*BACK))
    node = replay(entries).node(HOST)
    assert (node.state, node.why) == ("kept", f"{bad}: it broke")
    assert node.out_of_service


BROKEN = [*well(*FORWARD[:6]), ("audit", StepResult("failed", {"why": "it broke"}))]


@pytest.mark.parametrize("bad", BACK[:-1])
def test_a_node_that_is_not_brought_back_is_lost(bad):
    back = BACK[: BACK.index(bad)]
    node = replay(
        journal(*BROKEN, *well(*back), (bad, StepResult("failed", {"why": "worse"})), *well("keep"))
    ).node(HOST)
    assert (node.state, node.why) == ("lost", f"audit: it broke; {bad}: worse")
    assert node.lost


def test_a_node_that_could_not_be_kept_stops_the_others_and_the_next_controller_keeps_it():
    entries = journal(
        *BROKEN,
        *well(*BACK[:-1]),
        ("keep", StepResult("failed", {"why": "slurmctld does not answer"})),
    )
    node = replay(entries).node(HOST)
    assert (node.state, node.why, node.locked, node.lost) == (
        "unfinished",
        "audit: it broke; keep: slurmctld does not answer",
        True,
        True,
    )
    again = [
        *entries,
        Entry(AT, "", ROLLOUT, BEGUN, 2),
        Entry(AT, HOST, "lock", BEGUN, 8),
        Entry(AT, HOST, "lock", DONE, 8, {"fencing": 8, "boot_id": "b3"}),
    ]
    order = next_order(replay(again).node(HOST), TARGET, 2)
    assert (order.step, order.why) == ("keep", "audit: it broke")
    kept = [Entry(AT, HOST, "keep", BEGUN, 8, {"why": order.why}), Entry(AT, HOST, "keep", DONE, 8)]
    node = replay([*again, *kept]).node(HOST)
    assert (node.state, node.why, node.locked) == ("kept", "audit: it broke", False)


def test_a_changed_node_that_is_kept_because_its_rollout_was_ended_says_so():
    ended = [
        *journal(*well(*FORWARD[:5])),
        Entry(AT, HOST, "keep", BEGUN, 7, {"why": "ended by ops"}),
        Entry(AT, HOST, "keep", DONE, 7),
    ]
    node = replay(ended).node(HOST)
    assert (node.state, node.why) == ("lost", "ended by ops")


@pytest.mark.parametrize(("holder", "locked"), [(None, True), ({"run": "another"}, False)])
def test_a_node_whose_lock_step_failed_may_be_locked_unless_another_run_has_it(holder, locked):
    entries = journal(
        ("lock", StepResult("failed", {"why": "Read the boot id: no space left", "holder": holder}))
    )
    node = replay(entries).node(HOST)
    assert (node.state, node.locked) == ("deferred", locked)
    assert (after(entries).step, next_order(node, TARGET, 1)) == ("lock", None)


IN_USE = StepResult("failed", {"why": "expected no job on gpu001, found 4711", "free": False})


def test_a_node_with_a_job_again_directly_before_its_change_is_released_unchanged():
    node = replay(
        journal(
            *well(*FORWARD[:4]),
            ("apply", IN_USE),
            ("release", StepResult("ok", GOOD["release"] | {"boot_id": "b1"})),
        )
    ).node(HOST)
    assert (node.state, node.changed, node.boots) == ("deferred", False, ())
    assert node.why.startswith("apply: expected no job on gpu001, found 4711")


def test_a_node_whose_role_refused_before_any_change_is_released_unchanged_with_the_cause():
    refused = {"why": "/etc/apt/preferences.d/site pins other versions: x", "untouched": True}
    rows = (*well(*FORWARD[:4]), ("apply", StepResult("failed", refused)))
    node = replay(journal(*rows)).node(HOST)
    assert next_order(node, TARGET, 1).step == "release"
    released = StepResult("ok", GOOD["release"] | {"boot_id": "b1"})
    node = replay(journal(*rows, ("release", released))).node(HOST)
    assert (node.state, node.changed, node.drained, node.boots) == ("deferred", False, False, ())
    assert node.why == f"apply: {refused['why']}"


def test_a_node_with_a_job_again_directly_before_its_reboot_is_neither_booted_nor_rolled_back_beside_it():
    node = replay(journal(*well(*FORWARD[:5]), ("reboot", IN_USE), *well("keep"))).node(HOST)
    assert (node.state, node.boots, node.lost, node.out_of_service) == ("lost", (), True, True)


def test_a_node_that_somebody_else_shuts_down_before_its_reboot_is_not_rolled_back_nor_was_it_ordered():
    refused = StepResult("failed", IN_USE.evidence | {"shutting_down": True})
    node = replay(journal(*well(*FORWARD[:5]), ("reboot", refused))).node(HOST)
    assert (node.state, node.failure, next_order(node, TARGET, 1)) == ("unfinished", None, None)
    assert node.why.endswith("in the boot b1 (expected no job on gpu001, found 4711)")
    assert "was ordered" not in node.why


@pytest.mark.parametrize("step", ["smoke_alone", "smoke_together"])
def test_a_node_with_a_job_again_before_its_test_is_neither_tested_nor_rolled_back_beside_it(step):
    before = FORWARD[: FORWARD.index(step)]
    node = replay(journal(*well(*before), (step, IN_USE), *well("keep"))).node(HOST)
    assert (node.state, node.rolled_back, node.out_of_service) == ("lost", False, True)
    assert node.why == f"{step}: expected no job on gpu001, found 4711"


def test_a_change_that_a_killed_controller_began_is_not_forgotten_when_a_job_runs_at_the_next_try():
    taken = [
        Entry(AT, "", ROLLOUT, BEGUN, 2),
        Entry(AT, HOST, "lock", BEGUN, 4),
        Entry(AT, HOST, "lock", DONE, 5, {"fencing": 5, "boot_id": "b1"}),
    ]
    taken += [Entry(AT, HOST, step, DONE, 5, GOOD[step]) for step in ("drain", "wait")]
    taken += [
        Entry(AT, HOST, "apply", BEGUN, 5),
        Entry(AT, HOST, "apply", FAILED, 5, IN_USE.evidence),
    ]
    node = replay([*journal(*well(*FORWARD[:4]), ("apply", None)), *taken]).node(HOST)
    assert node.changed
    assert next_order(node, TARGET, 2).step == "keep"


SKIPPED = {"boot_id": "b2", "healthy": True, "skipped": "unhang_smoke is false"}
NO_SMOKE = [*well(*FORWARD[:6]), ("audit", StepResult("ok", SKIPPED))]


def test_without_a_smoke_test_a_second_audit_of_its_own_proves_the_node_before_its_release():
    assert next_order(replay(journal(*NO_SMOKE)).node(HOST), TARGET, 1).step == "audit_again"
    broken = StepResult("failed", {"why": "a link is down"})
    node = replay(journal(*NO_SMOKE, ("audit_again", broken))).node(HOST)
    assert next_order(node, TARGET, 1).step == "roll_back"
    entries = journal(*NO_SMOKE, *well("audit_again", "release"))
    assert replay(entries).node(HOST).state == "released"
    assert {entry.step for entry in entries}.isdisjoint({"smoke_alone", "smoke_together"})


@pytest.mark.parametrize("killed", FORWARD)
def test_the_next_controller_locks_first_and_then_goes_on_with_what_had_no_end(killed):
    entries = journal(*well(*FORWARD[: FORWARD.index(killed)]), (killed, None))
    assert after(entries).step == "lock"
    boot = "b2" if STEPS.index(killed) > STEPS.index("reboot") else "b1"
    taken = [
        Entry(AT, HOST, "lock", BEGUN, 4),
        Entry(AT, HOST, "lock", DONE, 5, {"fencing": 5, "boot_id": boot}),
    ]
    again = [
        entry
        for step in ("drain", "wait")
        for entry in (Entry(AT, HOST, step, BEGUN, 5), Entry(AT, HOST, step, DONE, 5, GOOD[step]))
    ]
    order = after(entries, *taken) if killed == "release" else after(entries, *taken, *again)
    assert order.token == 5
    assert order.step == {
        "lock": "save",
        "drain": "save",
        "wait": "save",
    }.get(killed, killed)


@pytest.mark.parametrize("seen", ["b1", "b2"])
def test_a_reboot_that_was_ordered_is_ordered_for_the_same_boot_again_and_counted_once(seen):
    entries = journal(*well(*FORWARD[:5]), ("reboot", None))
    taken = [
        Entry(AT, HOST, "lock", BEGUN, 4),
        Entry(AT, HOST, "lock", DONE, 5, {"fencing": 5, "boot_id": seen}),
    ]
    again = [Entry(AT, HOST, step, DONE, 5, GOOD[step]) for step in ("drain", "wait")]
    order = after(entries, *taken, *again)
    assert (order.step, order.boot_id, order.reboots_left) == ("reboot", "b1", 1)
    assert may_act(order) is None


@pytest.mark.parametrize(
    ("answer", "seen", "has_boots", "step"),
    [
        ({"needs_reboot": False}, "b2", True, "reboot_back"),
        ({"needs_reboot": True}, "b2", True, "reboot_back"),
        ({"needs_reboot": False}, "b2", False, "audit_back"),  # of a remedy that takes no boot
        ({"needs_reboot": False}, "b9", True, "audit_back"),  # it has booted since
    ],
)
def test_a_rollback_whose_end_nobody_saw_may_have_brought_back_what_takes_a_boot(
    answer, seen, has_boots, step
):
    failed = ("audit", StepResult("failed", {"why": "it broke", "boot_id": "b2"}))
    entries = journal(*well(*FORWARD[: FORWARD.index("audit")]), failed, ("roll_back", None))
    entries += [
        Entry(AT, "", ROLLOUT, BEGUN, 2),
        Entry(AT, HOST, "lock", BEGUN, 4),
        Entry(AT, HOST, "lock", DONE, 5, {"fencing": 5, "boot_id": seen}),
    ]
    entries += [Entry(AT, HOST, name, DONE, 5, GOOD[name]) for name in ("drain", "wait")]
    entries += [
        Entry(AT, HOST, "roll_back", BEGUN, 5),
        Entry(AT, HOST, "roll_back", DONE, 5, {"boot_id": seen, **answer}),
    ]
    order = next_order(
        replay(entries).node(HOST), dataclasses.replace(TARGET, boots_back=has_boots), 2
    )
    assert order.step == step
    assert order.boot_id == seen


@pytest.mark.parametrize("seen_by", ["roll_back", "lock"])
def test_the_trial_boot_of_a_kernel_that_did_not_come_up_is_counted(seen_by):
    entries = journal(
        *well(*FORWARD[: FORWARD.index("apply")]),
        ("apply", StepResult("failed", {"why": "found the old kernel"})),
    )
    if seen_by == "lock":
        entries += [
            Entry(AT, "", ROLLOUT, BEGUN, 2),
            Entry(AT, HOST, "lock", BEGUN, 4),
            Entry(AT, HOST, "lock", DONE, 5, {"fencing": 5, "boot_id": "b2"}),
        ]
    entries += [
        Entry(AT, HOST, "roll_back", BEGUN, 5),
        Entry(AT, HOST, "roll_back", DONE, 5, {"boot_id": "b2", "needs_reboot": True}),
    ]
    entries += [
        Entry(AT, HOST, "reboot_back", BEGUN, 5, {"boot_id": "b2"}),
        Entry(AT, HOST, "reboot_back", DONE, 5, {"boot_id": "b3"}),
    ]
    assert replay(entries).node(HOST).boots == (("apply", "b1"), ("reboot_back", "b2"))


def test_a_rollback_that_was_seen_to_its_end_is_believed():
    failed = ("audit", StepResult("failed", {"why": "it broke", "boot_id": "b2"}))
    done = StepResult("ok", {"boot_id": "b2", "needs_reboot": False})
    node = replay(
        journal(*well(*FORWARD[: FORWARD.index("audit")]), failed, ("roll_back", done))
    ).node(HOST)
    assert next_order(node, TARGET, 1).step == "audit_back"


def test_a_reboot_beyond_the_plan_is_not_made():
    # its trial boot was the one of the plan
    entries = journal(
        *well(*FORWARD[:4]), ("apply", StepResult("ok", {"boot_id": "b2", "needs_reboot": True}))
    )
    order = next_order(replay(entries).node(HOST), TARGET, 1)
    assert order.step == "reboot"
    assert "the plan allows no further reboot" in may_act(order)


@pytest.mark.parametrize(
    ("step", "evidence", "found"),
    ROWS["test_ok_without_the_evidence_has_failed"],
)
def test_ok_without_the_evidence_has_failed(step, evidence, found):
    status, kept = judge(Order(HOST, step, 4, "b1", 1), StepResult("ok", evidence), TARGET)
    assert status == FAILED
    assert found in kept["why"]


@pytest.mark.parametrize("seen", [{"boot_id": "b9"}, {"untouched": True}])
def test_a_node_that_boots_between_its_proof_and_its_release_is_not_released_until_it_is_proved_again(
    seen,
):
    """The lock that finds another boot touches nothing. No other node is changed meanwhile."""
    entries = journal(
        *well(*FORWARD[:-1]),
        ("release", StepResult("failed", {"why": "it has booted since", **seen})),
    )
    node = replay(entries).node(HOST)
    assert node.lost
    assert (node.state, node.out_of_service, is_proved(node)) == ("unfinished", True, False)
    assert after(entries, *taken_in("b9")) == Order(HOST, "audit", 5, "b9")


def test_a_node_that_boots_while_its_controller_is_dead_is_proved_again_though_its_release_was_begun():
    entries = journal(*well(*FORWARD[:-1]), ("release", None))
    assert after(entries, *taken_in("b9")) == Order(HOST, "audit", 5, "b9")
    bad = Entry(AT, HOST, "audit", FAILED, 5, {"boot_id": "b9", "why": "its driver is gone"})
    assert after(entries, *taken_in("b9"), bad).step == "roll_back"


def taken_in(boot):
    """The next controller has the node, in this boot, drained and without jobs."""
    lock = [
        Entry(AT, HOST, "lock", BEGUN, 4),
        Entry(AT, HOST, "lock", DONE, 5, {"fencing": 5, "boot_id": boot}),
    ]
    return [*lock, *(Entry(AT, HOST, step, DONE, 5, GOOD[step]) for step in ("drain", "wait"))]


def test_a_node_on_which_nothing_was_changed_is_released_in_whatever_boot_it_is():
    order = after(
        journal(*well("lock", "drain")),
        *[
            Entry(
                AT, HOST, "lock", DONE, 5, {"fencing": 5, "boot_id": "b9", "stale": "it has booted"}
            )
        ],
    )
    assert (order.step, order.boot_id) == ("release", None)
    assert judge(order, StepResult("ok", {"drained": False, "owned": False}), TARGET)[0] == DONE


def test_a_node_that_somebody_else_drained_is_released_without_a_change():
    entries = journal(
        *well("lock"),
        (
            "drain",
            StepResult("ok", {"drained": True, "owned": False, "by": "ops", "reason": "dimm"}),
        ),
    )
    order = next_order(replay(entries).node(HOST), TARGET, 1)
    assert order.step == "release"
    assert "ops has drained the node: dimm" in order.why


def test_a_node_that_has_booted_since_the_plan_is_released_without_a_change():
    entries = journal(("lock", StepResult("ok", {"fencing": 4, "boot_id": "b9"})))
    order = next_order(replay(entries).node(HOST), TARGET, 1)
    assert (
        order.step,
        "its boot is b9, not b1; audit it again, then unhang plan" in order.why,
    ) == (
        "release",
        True,
    )


def test_a_plan_that_is_not_good_for_the_node_any_more_touches_nothing():
    stale = Target(HOST, "b1", 1, refused="kernel.release is 6.5, not 6.1")
    assert next_order(NodeState(HOST), stale, 1) is None


def test_nothing_is_asked_of_a_node_that_did_not_answer_until_the_next_controller():
    entries = journal(*well(*FORWARD[:4]), ("apply", StepResult("silent", {"why": "unreachable"})))
    assert next_order(replay(entries).node(HOST), TARGET, 1) is None
    assert after(entries).step == "lock"


def test_a_node_that_another_run_has_taken_is_left_to_it_for_good():
    entries = journal(
        *well(*FORWARD[:4]), ("apply", StepResult("fenced", {"why": "its number is 9"}))
    )
    assert replay(entries).node(HOST).state == "taken over"
    assert after(entries) is None


BOOTED = StepResult(
    "failed", {"why": "expected the boot b1, found b9: the node has booted", "untouched": True}
)


def test_a_node_that_boots_between_drain_and_change_is_withdrawn_with_that_reason():
    entries = journal(*well(*FORWARD[:4]), ("apply", BOOTED), *well("release"))
    node = replay(entries).node(HOST)
    assert (node.state, node.boots, node.changed) == ("deferred", (), False)
    assert node.why.startswith("apply: expected the boot b1, found b9: the node has booted")


@pytest.mark.parametrize(
    ("status", "goes_on"), [(None, "lock"), (DONE, "apply"), (FAILED, "release")]
)
def test_a_step_that_only_the_version_before_had_is_read_from_its_journal(status, goes_on):
    entries = journal(*well(*FORWARD[:4]))
    evidence = {"boot_id": "b1", "why": "it hangs"}
    entries.append(Entry(AT, HOST, "smoke_before", BEGUN, 4, {"boot_id": "b1"}))
    if status is None:
        assert after(entries).step == goes_on
        return
    entries.append(Entry(AT, HOST, "smoke_before", status, 4, evidence))
    assert next_order(replay(entries).node(HOST), TARGET, 1).step == goes_on


def test_a_node_that_somebody_boots_after_the_change_is_rolled_back_and_that_boot_is_not_counted():
    entries = journal(*well(*FORWARD[:5]), ("reboot", BOOTED))
    node = replay(entries).node(HOST)
    assert (node.boots, node.changed) == ((), True)
    order = next_order(node, TARGET, 1)
    assert order.step == "roll_back"
    assert order.why.startswith("reboot: expected the boot b1, found b9")


def test_a_node_that_was_reinstalled_is_not_said_to_be_as_it_was_before():
    changed = {"boot_id": "b1", "needs_reboot": True, "saved_state": "20261120T070000Z-gpu_driver"}
    gone = {"boot_id": "b2", "needs_reboot": False, "known": False}
    entries = journal(
        *well(*FORWARD[:4]),
        ("apply", StepResult("ok", changed)),
        *well("reboot"),
        ("audit", StepResult("failed", {"why": "no driver"})),
        ("roll_back", StepResult("ok", gone)),
        *well("keep"),
    )
    node = replay(entries).node(HOST)
    assert (node.state, node.as_before) == ("lost", False)
    assert ": the node was reinstalled since" in node.why


def test_a_reboot_that_an_earlier_controller_ordered_is_asked_for_again_as_such():
    begun = journal(*well(*FORWARD[:5]), ("reboot", None))
    assert not next_order(replay(begun[:-1]).node(HOST), TARGET, 1).again
    assert after(begun, *taken_in("b2")).again
