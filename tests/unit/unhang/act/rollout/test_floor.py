"""The floor over the nodes that are really in service: the number that it leaves to a rollout, the
hosts in its message, and the admitted hosts."""

from __future__ import annotations

import pytest
from standing_rollouts import standing_of

from unhang.act.rollout.failure_limit import Limit, Limits, admit, why_not
from unhang.act.rollout.floor import (
    Floor,
    Service,
    floor_evidence,
    floor_left,
    floor_of,
    service_of,
)
from unhang.act.rollout.node_state import NodeState
from unhang.act.rollout.rollout_state import RolloutState
from unhang.act.rollout.steps import DONE, FLOOR, POSTPONED, RELEASED, WAITING, Entry

WAVES = (("a",), ("b", "c", "d"))
LIMITS = Limits(9, frozenset("a"), (Limit("the fleet", frozenset("abcd"), 9),))
FLEET = frozenset("abcdef")


def service(**out):
    return Service(FLEET - out.keys(), out)


def standing(left, *nodes):
    found = standing_of(WAVES, {node.host: node for node in nodes})
    return found.take([Entry("2026-11-20T07:00:00Z", "", FLOOR, DONE, 1, floor_evidence(left))])


@pytest.mark.parametrize(
    ("out", "ours", "floor", "most"),
    [
        ({}, "", 4, 2),
        ({"f": "alice"}, "", 4, 1),
        ({"e": "alice", "f": "alice"}, "", 4, 0),
        ({"d": "alice", "e": "alice", "f": "alice"}, "", 4, 0),
        ({"b": "unhang r"}, "b", 4, 2),
        ({"b": "unhang r", "f": "alice"}, "b", 4, 1),
        ({"f": "alice"}, "b", 4, 1),  # b was ordered out and is in service still
    ],
)
def test_as_many_may_be_out_as_the_floor_leaves_of_those_in_service(out, ours, floor, most):
    assert floor_left(service(**out), set(ours), floor).most == most


def test_the_line_names_who_took_nodes_out_and_never_our_own():
    found = floor_left(service(b="unhang r", e="alice (bad DIMM)", f="x" * 100), {"b"}, 4)
    assert (
        found.why
        == f"at least 4 nodes must stay in service, and 3 are now; out of service by others: e (alice (bad DIMM)), f ({'x' * 60}… (cut, 100 characters))"
    )
    many = Service(frozenset(), {f"n{number:02}": "it is not Ready" for number in range(20)})
    assert floor_left(many, set(), 1).why.endswith("n07 (it is not Ready) and 12 more")


def test_a_host_has_another_name_in_its_scheduler_and_one_that_is_not_listed_takes_no_jobs():
    found = service_of(
        {"in_service": ["a", "node-b"], "out": {"node-c": "alice"}},
        ["a", "b", "c", "d"],
        lambda host: f"node-{host}",
    )
    assert (found.in_service, found.out) == (
        {"a", "b"},
        {"c": "alice", "d": "not listed by its scheduler"},
    )


def test_a_machine_with_two_names_in_the_inventory_counts_once():
    found = service_of(
        {"in_service": ["a10", "a2"], "out": {"a3": "alice"}},
        ["a10-ib", "a10", "a2", "a3-ib", "a3"],
        lambda host: host.removesuffix("-ib"),
    )
    assert (found.in_service, found.out) == ({"a2", "a10"}, {"a3": "alice"})


def test_a_wave_begins_with_as_many_as_the_floor_leaves():
    left = floor_left(service(e="alice", f="alice"), set(), 3)
    admitted = admit(standing(left, NodeState("a", state=RELEASED)), 1, LIMITS)
    assert (admitted.begin, set(admitted.postponed)) == (("b",), {"c", "d"})
    assert (
        admitted.postponed["c"]
        == "at least 3 nodes must stay in service, and 4 are now; out of service by others: e (alice), f (alice)"
    )


def test_who_is_drained_already_is_not_one_too_many_and_who_only_was_to_be_is():
    drained = NodeState("a", drained=True, locked=True, done=frozenset({"lock", "drain"}))
    assert why_not(standing(Floor(0, "full"), drained), "a", 0, LIMITS) is None
    died = NodeState("a", drained=True, locked=True, done=frozenset({"lock"}))
    assert why_not(standing(Floor(0, "full", frozenset("a")), died), "a", 0, LIMITS) == "full"
    assert why_not(standing(Floor(1, "full", frozenset("a")), died), "a", 0, LIMITS) is None


def test_behind_a_canary_that_was_put_off_nothing_begins():
    admitted = admit(standing_of(WAVES, {"a": NodeState("a", state=POSTPONED)}), 1, LIMITS)
    assert (admitted.begin, admitted.stopped) == (
        (),
        "not proved healthy among the canaries, for it was put off: a",
    )


@pytest.mark.parametrize(("emptied", "is_out"), [(["b"], True), (["c"], False), ("b", False)])
def test_a_reserved_node_is_out_of_service_when_the_scheduler_says_that_its_job_ended(
    emptied, is_out
):
    reserved = NodeState("b", state=WAITING, drained=True, locked=True, reserved=True)
    found = standing_of((("a", "b"), ("c",)), {"a": NodeState("a", state=RELEASED), "b": reserved})
    assert (found.out, found.reserved()) == (set(), {"b"})
    evidence = {**floor_evidence(Floor(9, "")), "emptied": emptied}
    found.take([Entry("2026-11-20T07:00:00Z", "", FLOOR, DONE, 1, evidence)])
    assert found.out == ({"b"} if is_out else set())
    one = Limits(9, frozenset("a"), (Limit("the fleet", frozenset("abc"), 1),))
    assert (why_not(found, "c", 1, one) is not None) == is_out


@pytest.mark.parametrize(
    "evidence",
    [
        {},
        {"most": True, "undrained": []},
        {"most": 1},
        {"most": "1", "undrained": []},
        {"most": 1, "undrained": {}},
    ],
)
def test_what_says_no_number_is_no_floor(evidence):
    assert floor_of(evidence) is None
    assert (
        RolloutState(WAVES)
        .take([Entry("2026-11-20T07:00:00Z", "", FLOOR, DONE, 1, evidence)])
        .floor
        is None
    )


def test_a_floor_is_read_as_it_was_kept():
    assert floor_of(floor_evidence(Floor(3, "why", frozenset("ba")))) == Floor(
        3, "why", frozenset("ab")
    )
