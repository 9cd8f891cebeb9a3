"""The failure limit: which wave may begin, and which of its nodes."""

from __future__ import annotations

import pytest
from standing_rollouts import standing_of

from unhang.act.rollout.failure_limit import Limit, Limits, admit, allowed_failures, stop_reason
from unhang.act.rollout.node_state import NodeState
from unhang.act.rollout.steps import (
    FAILED,
    FINAL,
    KEPT,
    LOST,
    POSTPONED,
    PROOFS,
    RELEASED,
    SILENT,
    TAKEN_OVER,
    TO_COME,
    UNFINISHED,
)
from unhang.core.errors import UserError

WAVES = (("a",), ("b", "c", "d"), ("e", "f"))
CANARIES = frozenset("a")


def nodes(*more, **states):
    known = {
        host: NodeState(
            host,
            state=state,
            changed=state in (LOST, KEPT, RELEASED),
            drained=state in (LOST, KEPT),
        )
        for host, state in states.items()
    }
    return standing_of(WAVES, known | {node.host: node for node in more})


@pytest.mark.parametrize(
    "state",
    [KEPT, LOST, UNFINISHED, TO_COME, POSTPONED, TAKEN_OVER],
)
def test_a_canary_without_a_proof_stops_everything_behind_it(state):
    assert "a" in stop_reason(nodes(a=state), 1, Limits(9, CANARIES))
    assert admit(nodes(a=state), 1, Limits(9, CANARIES)).begin == ()


def test_a_proved_canary_lets_the_next_wave_begin():
    assert admit(nodes(a=RELEASED), 1, Limits(0, CANARIES)).begin == ("b", "c", "d")


@pytest.mark.parametrize(
    ("rests", "begin"), [("", ("b", "c", "d")), (FAILED, ("b", "c", "d")), (SILENT, ())]
)
def test_a_proved_canary_that_is_not_released_yet_counts_unless_it_is_silent(rests, begin):
    """One that hangs after its proof is no proof for the next wave."""
    canary = NodeState(
        "a",
        state=UNFINISHED,
        changed=True,
        boot_id="boot-2",
        proofs=dict.fromkeys(PROOFS, "boot-2"),
        rests=rests,
    )
    assert admit(nodes(canary), 1, Limits(0, CANARIES)).begin == begin


def test_no_answer_counts_as_failed():
    proved = nodes(a=RELEASED, b=RELEASED)
    assert (
        stop_reason(proved, 2, Limits(1, CANARIES)) == "not proved healthy: c, d; at most 1 may be"
    )
    assert stop_reason(proved, 2, Limits(2, CANARIES)) is None


def test_one_node_that_was_not_brought_back_stops_everything_whatever_is_allowed():
    found = nodes(a=RELEASED, b=RELEASED, c=RELEASED, d=LOST)
    assert (
        stop_reason(found, 2, Limits(9, CANARIES))
        == "not brought back, or no answer after it was changed: d"
    )
    assert stop_reason(found, 1, Limits(9, CANARIES)) is not None


@pytest.mark.parametrize(("boot", "stops"), [("boot-2", False), ("boot-3", True)])
def test_a_node_that_booted_by_itself_since_its_proof_stops_everything_until_it_is_proved_again(
    boot, stops
):
    node = NodeState(
        "b",
        state=UNFINISHED,
        rests=FAILED,
        changed=True,
        drained=True,
        boot_id=boot,
        proofs=dict.fromkeys(PROOFS, "boot-2"),
    )
    found = stop_reason(nodes(node, a=RELEASED, c=RELEASED, d=RELEASED), 2, Limits(9, CANARIES))
    assert (found == "not brought back, or no answer after it was changed: b") == stops
    assert found is None or stops


def test_nodes_out_of_service_make_room_for_no_others():
    room = Limits(9, CANARIES, (Limit("rack1", frozenset("bcdef"), 2),))
    admitted = admit(nodes(a=RELEASED, b=KEPT, c=RELEASED, d=RELEASED), 2, room)
    assert admitted.begin == ("e",)
    assert admitted.postponed == {"f": "more than 2 nodes of rack1 would be out of service: b, e"}


def test_a_postponed_node_is_no_failure_and_what_is_ours_comes_to_an_end_whatever_the_failure_limit_says():
    standing = nodes(
        NodeState("e", state=UNFINISHED, locked=True), a=RELEASED, b=POSTPONED, c=RELEASED, d=LOST
    )
    assert admit(standing, 2, Limits(0, CANARIES)).begin == ("e",)


def test_what_has_ended_is_not_begun_again():
    assert all(admit(nodes(a=state), 0, Limits(0, CANARIES)).begin == () for state in FINAL)


@pytest.mark.parametrize(
    ("given", "allowed"), [(0, 0), ("3", 3), ("5%", 2), ("0%", 0), ("100%", 40), (" 10% ", 4)]
)
def test_failures_are_a_number_or_a_share_rounded_down(given, allowed):
    assert allowed_failures(given, 40) == allowed


@pytest.mark.parametrize("given", ["", "-1", "1.5", "five", "101%", "%", None])
def test_another_number_of_failures_is_refused(given):
    with pytest.raises(UserError, match="is not a number of nodes or a share such as 5%"):
        allowed_failures(given, 40)
