"""Answers of roles as evidence for the state machine."""

from __future__ import annotations

import pytest

from unhang.act.rollout.evidence import (
    drain_evidence,
    first_state,
    groups_of_kinds,
    rest_of,
    smoke_evidence,
)
from unhang.act.rollout.state_machine import judge
from unhang.act.rollout.steps import DONE, FAILED, Order, StepResult, Target

JOB = {"id": "4711", "user": "alice", "state": "RUNNING", "ends": ""}
OURS = {"drained": True, "by": "root", "reason": "unhang r1: x", "jobs": [], "owned": True}


def status_of(step, evidence, status="ok"):
    return judge(Order("gpu001", step, 1, None, 1), StepResult(status, evidence), Target("gpu001"))[
        0
    ]


@pytest.mark.parametrize(
    ("result", "adapter", "step", "status"),
    [
        (OURS, "slurm", "drain", DONE),
        ({**OURS, "drained": False}, "slurm", "drain", FAILED),
        ({"drained": False, "jobs": [], "owned": False}, "none", "drain", DONE),
        ({**OURS, "jobs": [JOB]}, "slurm", "drain", FAILED),
        ({**OURS, "jobs": [JOB]}, "slurm", "wait", FAILED),
        ({**OURS, "jobs": None}, "slurm", "wait", FAILED),
        (OURS, "slurm", "wait", DONE),
        (
            {"drained": False, "by": "", "reason": "", "jobs": [], "owned": False},
            "slurm",
            "release",
            DONE,
        ),
        (OURS, "slurm", "release", FAILED),
        ({**OURS, "owned": False, "by": "ops"}, "slurm", "release", DONE),
        ({"drained": True, "jobs": [], "owned": False}, "none", "release", DONE),
    ],
)
def test_how_a_node_stands_is_what_the_machine_judges(result, adapter, step, status):
    assert status_of(step, drain_evidence(result, adapter, step)) == status


def test_acting_beside_a_job_has_to_be_asked_for_and_is_written_down():
    evidence = drain_evidence({**OURS, "jobs": [JOB]}, "slurm", "wait", beside_jobs=True)
    assert (status_of("wait", evidence), evidence["beside"]) == (DONE, ["4711 of alice"])


def test_a_node_that_somebody_else_drained_says_who():
    assert (
        drain_evidence({**OURS, "owned": False, "by": "ops", "reason": "dimm"}, "slurm", "release")[
            "drained_by_others"
        ]
        == "drained by ops: dimm"
    )


PASS = {"verdict": "pass", "hosts": [{"host": "a"}, {"host": "b"}], "suspects": []}
FAIL = {
    "verdict": "fail",
    "hosts": [{"host": "a"}, {"host": "b"}, {"host": "c"}],
    "suspects": [{"host": "b", "why": "its links are slow"}],
}


def test_a_host_is_proved_by_a_test_that_it_took_part_in():
    assert smoke_evidence(PASS, "a", True) == {"healthy": True, "with": ["b"]}
    assert not smoke_evidence(PASS, "c", True)["healthy"]
    assert not smoke_evidence({}, "a", True)["healthy"]


def test_a_test_that_failed_names_who_is_suspected():
    assert (
        smoke_evidence(FAIL, "a", True)["why"]
        == "the smoke test of a, b, c: fail; b: its links are slow"
    )


def test_a_smoke_test_that_nobody_wants_is_said_to_be_left_out():
    assert smoke_evidence({}, "a", False) == {"healthy": True, "skipped": "unhang_smoke is false"}


@pytest.mark.parametrize(
    ("result", "rest"),
    [
        (FAIL, ["a", "c"]),
        (PASS, []),
        ({**FAIL, "suspects": []}, []),
        ({**FAIL, "verdict": "unproved"}, []),
        ({**FAIL, "suspects": [{"host": "x"}]}, []),
    ],
)
def test_those_that_were_not_named_are_tried_once_more(result, rest):
    assert rest_of(["a", "b", "c"], result) == rest


def test_a_rollback_goes_to_the_first_state_of_this_run_that_stands():
    states = [
        {"id": "1", "run": "old", "status": "finished"},
        {"id": "2", "run": "r", "status": "rolled_back"},
    ]
    states += [
        {"id": "3", "run": "r", "status": "finished"},
        {"id": "4", "run": "r", "status": "failed"},
    ]
    assert first_state(states, "r") == "3"
    assert first_state(states, "another") == ""


def test_what_a_smoke_test_measured_goes_into_the_journal():
    measured = {"op": "all_reduce", "size_bytes": 1 << 30, "busbw_gb_s": 350.5}
    row = {
        **measured,
        "low_gb_s": None,
        "high_gb_s": None,
        "source": "nobody",
        "verdict": "not judged",
    }
    shown = smoke_evidence(
        {"verdict": "pass", "hosts": [{"host": "a"}], "bandwidth": [row]}, "a", True
    )
    assert shown == {"healthy": True, "with": [], "bandwidth": [measured]}


def test_where_nothing_judges_a_bandwidth_the_largest_message_of_each_operation_stands_in_the_journal():
    shapes = [
        ("all_reduce", 1 << 20, 0.5, "bandwidth"),
        ("all_reduce", 8 << 20, 0.75, "bandwidth"),
        ("all_reduce", 64 << 20, 9.0, "correctness"),
    ]
    shapes += [("broadcast", 1 << 20, 0.25, "bandwidth"), ("all_gather", 1 << 20, 0.0, "bandwidth")]
    rows = [
        {
            "op": op,
            "size_bytes": size,
            "busbw_gb_s": busbw,
            "measures": measures,
            "dtype": "float32",
        }
        for op, size, busbw, measures in shapes
    ]
    measured = [
        {"op": "all_reduce", "size_bytes": 8 << 20, "busbw_gb_s": 0.75},
        {"op": "broadcast", "size_bytes": 1 << 20, "busbw_gb_s": 0.25},
    ]
    assert (
        smoke_evidence({**PASS, "bandwidth": [], "collectives": rows}, "a", True)["bandwidth"]
        == measured
    )


def test_nodes_of_different_kinds_are_not_tested_together():
    now = {"order": {"step": "smoke_together"}}
    asked = {
        "a": {**now, "kind": "H200"},
        "b": {**now, "kind": "3090"},
        "c": {**now, "kind": "H200"},
        "d": {"order": {}, "kind": "H200"},
        "e": {},
    }
    assert groups_of_kinds(asked, "smoke_together") == [["a", "c"], ["b"]]
    assert groups_of_kinds({}, "smoke_together") == []
