"""How long a node waits for its jobs, what that means for the others, and how a rollout is ended.
States and answers, no node."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from unhang.act.rollout.failure_limit import Limits, admit
from unhang.act.rollout.node_state import NodeState, follow, meaning_of
from unhang.act.rollout.rollout_state import RolloutState
from unhang.act.rollout.state_machine import judge, next_order
from unhang.act.rollout.steps import (
    BEGUN,
    DONE,
    FAILED,
    PROOFS,
    RELEASED,
    ROLLOUT,
    WAITING,
    WAITS,
    Entry,
    Order,
    StepResult,
    Target,
)
from unhang.act.rollout.waiting import (
    GRACE_S,
    UNLIMITED_S,
    parse_time,
    utc_text,
    waits_until,
)
from unhang.core.errors import UserError

SINCE = "2026-11-23T12:00:00Z"
WAVES = [("a",), ("b", "c"), ("d",)]
DRAINED = [
    ("lock", DONE, {"fencing": 1, "boot_id": "b1"}),
    ("drain", DONE, {"drained": True, "owned": True}),
]


def moment(seconds):
    return datetime.datetime.fromisoformat(SINCE) + datetime.timedelta(seconds=seconds)


def later(seconds):
    return utc_text(moment(seconds))


def local(seconds):
    """As squeue prints it, by the clock of its host."""
    return moment(seconds).astimezone().strftime("%Y-%m-%dT%H:%M:%S")


@pytest.mark.parametrize(
    ("ends", "until"),
    [
        ((local(3600), local(7200)), later(7200 + GRACE_S)),
        ((local(3600), ""), later(UNLIMITED_S)),
        (("NONE",), later(UNLIMITED_S)),
        ((local(-50),), later(GRACE_S)),
    ],
)
def test_jobs_are_waited_for_until_their_time_limits_and_a_day_without_one(ends, until):
    assert waits_until(SINCE, ends) == until


@pytest.mark.parametrize(
    ("given", "seconds"), [("90s", 90), ("30m", 1800), ("12h", 43200), ("3d", 259200)]
)
def test_a_time_has_its_unit(given, seconds):
    assert parse_time(given, "--soak") == seconds


@pytest.mark.parametrize("given", ["3", "d", "3 days", "-1h", ""])
def test_a_time_without_a_unit_is_refused(given):
    with pytest.raises(UserError, match="--soak takes a time such as 30m, 12h or 3d"):
        parse_time(given, "--soak")


@pytest.mark.parametrize("step", ["drain", "wait"])
def test_a_job_that_goes_on_is_waited_for_and_fails_only_when_the_wait_is_over(step):
    def waited(jobs, over, drained=False):
        evidence = {
            "jobs": jobs,
            "over": over,
            "until": SINCE,
            "drained": drained,
            "owned": drained,
        }
        return judge(Order("b", step, 1, "b1"), StepResult("ok", evidence), Target("b"))

    assert waited(["4711"], over=False)[0] == WAITS
    status, evidence = waited(["4711"], over=True, drained=True)
    assert (status, evidence["why"]) == (
        FAILED,
        f"the node still has jobs by {SINCE}: 4711",
    )
    assert waited([], over=False, drained=True)[0] == DONE


def through(rollout, host, *rows, epoch=1):
    return rollout.take(
        Entry(SINCE, host, step, status, epoch, evidence) for step, status, evidence in rows
    )


def begun(rollout, epoch):
    return rollout.take([Entry(SINCE, "", ROLLOUT, BEGUN, epoch)])


def with_b_to_come():
    """A rollout in which every node before the last wave but b is proved."""
    return begun(
        RolloutState(WAVES, [NodeState(host, state=RELEASED, changed=True) for host in ("a", "c")]),
        1,
    )


def test_while_a_node_waits_the_next_wave_goes_on_and_the_node_stays_drained():
    rollout = through(
        with_b_to_come(),
        "b",
        *DRAINED,
        ("drain", BEGUN, {}),
        ("wait", WAITS, {"jobs": ["4711"], "why": "job 4711"}),
    )
    node = rollout.node("b")
    assert (node.state, node.waits_since, node.out_of_service, node.failure) == (
        WAITING,
        SINCE,
        True,
        None,
    )
    assert next_order(node, Target("b"), 1) is None
    assert admit(rollout, 2, Limits()).begin == ("d",)


@pytest.mark.parametrize("failing", ["lock", "drain", "wait", "save"])
def test_a_node_that_was_refused_or_withdrawn_is_begun_again_by_the_next_controller(failing):
    rows = [*DRAINED, ("wait", DONE, {"jobs": []})][
        : ["lock", "drain", "wait", "save"].index(failing)
    ]
    ending = (
        []
        if failing == "lock"
        else [("release", BEGUN, {}), ("release", DONE, {"drained": False, "owned": False})]
    )
    rollout = through(with_b_to_come(), "b", *rows, (failing, FAILED, {"why": "no"}), *ending)
    assert admit(rollout, 2, Limits()).begin == ("d",), "nothing was changed, so nothing failed"
    assert next_order(rollout.node("b"), Target("b"), 1) is None
    begun(rollout, 2)
    assert "b" in admit(rollout, 1, Limits()).begin
    assert next_order(rollout.node("b"), Target("b"), 2).step == "lock"


def test_no_later_wave_begins_before_a_canary_that_waits_and_the_next_controller_takes_it_up():
    rollout = through(
        begun(RolloutState(WAVES), 1),
        "a",
        *DRAINED,
        ("wait", WAITS, {"jobs": ["1"], "why": "job 1"}),
    )
    limits = Limits(0, frozenset(("a",)))
    assert admit(rollout, 1, limits).begin == ()
    begun(rollout, 2)
    assert admit(rollout, 0, limits).begin == ("a",)


def test_a_changed_node_with_a_job_is_kept_and_not_waited_for():
    node = follow(
        NodeState("b", epoch=1, done=frozenset(("lock", "drain")), changed=True, boot_id="b1"),
        Entry(SINCE, "b", "wait", WAITS, 1, {"why": "job 1"}),
        1,
    )
    assert next_order(node, Target("b"), 1).step == "keep"


def test_who_ends_a_rollout_releases_what_is_unchanged_and_keeps_what_is_changed():
    done = frozenset(("lock", "drain", "wait"))
    unchanged = NodeState(
        "b", epoch=2, locked=True, drained=True, done=done, boot_id="b1", state="unfinished"
    )
    changed = NodeState(
        "c", epoch=2, changed=True, applied=True, done=done, boot_id="b1", state="unfinished"
    )
    proved = replace(changed, rebooted=True, proofs=dict.fromkeys(PROOFS, "b1"))
    orders = [
        next_order(node, Target(node.host), 2, "ended by ops", "ended by ops")
        for node in (unchanged, changed, proved)
    ]
    assert [(order.step, order.why) for order in orders] == [
        ("release", "ended by ops"),
        ("keep", "ended by ops"),
        ("release", ""),
    ]
    rollout = RolloutState(WAVES, [unchanged])
    assert admit(rollout, 1, Limits(), "ended by ops").begin == ("b",)
    assert (
        rollout.take([Entry(SINCE, "", ROLLOUT, DONE, 2, {"closed": "ended by ops"})]).closed
        == "ended by ops"
    )


@pytest.mark.parametrize(
    ("found", "how"),
    [
        ({"drained": False}, "reserved in Slurm; "),
        ({"drained": True}, "drained; "),
        ({"drained": True, "scheduler": "none"}, ""),
    ],
)
def test_a_waiting_node_says_what_keeps_new_jobs_from_it(found, how):
    rollout = begun(RolloutState(WAVES), 1)
    rows = (DRAINED[0], ("drain", BEGUN, {}), ("drain", WAITS, {"jobs": ["4711"], **found}))
    node = through(rollout, "a", *rows).node("a")
    assert meaning_of(node) == f"{how}its jobs have not ended yet, and nothing was changed"
    assert node.out_of_service == (how == "drained; ")
