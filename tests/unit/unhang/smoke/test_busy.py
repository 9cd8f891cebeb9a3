"""A rank that may only have been slow on a busy machine accuses nobody; one that slept, and a fault
in the kernel log, are not excused."""

from __future__ import annotations

import pytest
from foreign_schemas import junit_faults

from unhang.core.schemas.check import check_schema
from unhang.core.smoke_result import document_of, smoke_result
from unhang.smoke.busy import busy_reason
from unhang.smoke.commands.smoke_output import exit_code
from unhang.smoke.render import render_junit, render_table
from unhang.smoke.result import judge
from unhang.smoke.streams import Stream

BUSY = {"cpus": 2, "over_s": 10.7, "runnable": 21.9, "waited": 1.0, "stolen": 0.01}
IDLE = {"cpus": 2, "over_s": 10.7, "runnable": 0.4, "waited": 0.02, "stolen": 0.0}


def stalled(rank, seq, queued):
    """A rank that is past its deadline in a step of shapes."""
    met = {"e": "phase_end", "phase": "rendezvous", "status": "ok", "result": {}}
    stall = {"e": "stall", "phase": "shapes", "step": f"step {seq}", "seq": seq, "state": "R"}
    rest = {} if queued is None else {"queued": queued}
    return [
        {"e": "phase_begin", "rank": rank, "phase": "rendezvous"},
        {**met, "rank": rank, "duration_s": 0.1},
        {"e": "phase_begin", "rank": rank, "phase": "shapes"},
        {**stall, "rank": rank, "reason": "deadline", "waited_s": 10.1, **rest},
    ]


def judged(load, queued=0.7, seqs=(49, 49), more=(), **seen):
    """The result of two ranks of one node that stalled at these collectives."""
    events = [event for rank, seq in enumerate(seqs) for event in stalled(rank, seq, queued)]
    node = [{"e": "load", **load}] if load else []
    evidence = {"e": "evidence", "kernel_log": [], "nvml": None, **seen}
    stream = Stream("gpu001", (0, 1), (*events, *more, *node, evidence, {"e": "node_end"}))
    result = document_of(judge([stream]))
    assert list(check_schema(result, "smoke-1")) == []
    return result


@pytest.mark.parametrize("seqs", [(49, 49), (49, 48)])
@pytest.mark.parametrize("queued", [0.7, None])
def test_a_phase_that_is_slow_on_a_busy_machine_is_not_proved(seqs, queued):
    result = judged(BUSY, queued, seqs)
    assert (result["verdict"], exit_code(smoke_result(result))) == ("error", 3)
    assert result["not_proved"] == (
        "gpu001: the machine is busy (21.9 tasks for 2 CPUs, tasks waited for a CPU 100 % of the"
        " time, the hypervisor took 1 %, over 11 s)"
    )
    [suspect] = result["suspects"]
    assert suspect["blind"] and "less busy" in suspect["next"]
    assert f"verdict: not proved: {result['not_proved']}" in render_table(smoke_result(result))
    junit = render_junit(smoke_result(result))
    assert junit_faults(junit) == [] and "<error" in junit and "<failure" not in junit


@pytest.mark.parametrize(
    ("load", "queued", "seen"),
    [
        (IDLE, 0.7, {}),
        (None, 0.7, {}),
        (BUSY, 0.02, {}),  # its threads slept: a hang beside the work of others
        (BUSY, 0.7, {"kernel_log": ["mlx5_core 0000:17:00.0 ib0: Link down"]}),
    ],
)
@pytest.mark.parametrize("seqs", [(49, 49), (49, 48)])
def test_a_hang_stays_a_failure_where_the_load_does_not_explain_it(load, queued, seen, seqs):
    result = judged(load, queued, seqs, **seen)
    assert result["verdict"] == "fail" and result["not_proved"] is None
    assert not result["suspects"][0]["blind"]


def test_certain_evidence_counts_on_a_busy_machine_too():
    killed = {"e": "exit", "rank": 1, "code": -9, "signal": "SIGKILL", "phase": "shapes", "seq": 48}
    result = judged(BUSY, more=[killed])
    assert result["verdict"] == "fail"
    assert [one["rank"] for one in result["suspects"]] == [1]


def test_a_driver_is_a_likely_cause_only_where_the_load_does_not_explain_its_silence():
    silent = "NVML did not answer within 3 s: the driver hangs"
    assert "hangs" in judged(IDLE, nvml=silent)["suspects"][0]["why"]
    assert "hangs" not in judged(BUSY, nvml=silent)["suspects"][0]["why"]
    not_asked = "the program that reads NVML did not start within 3 s"
    assert "likely" not in judged(IDLE, nvml=not_asked)["suspects"][0]["why"]


@pytest.mark.parametrize(
    ("load", "is_busy"),
    [
        (BUSY, True),
        (IDLE, False),
        ({**BUSY, "waited": 0.49}, False),  # short bursts
        ({**BUSY, "cpus": 64}, False),  # fewer tasks than CPUs
        ({**BUSY, "waited": None}, True),  # a kernel without pressure, and a long queue
        ({**BUSY, "waited": None, "runnable": 3.5}, False),
        ({**IDLE, "stolen": 0.4}, True),
        ({"cpus": "2", "runnable": "many", "waited": [], "stolen": {}}, False),
        (None, False),
    ],
)
def test_pressure_queue_and_steal_decide_together(load, is_busy):
    assert (busy_reason({"host": "gpu001", "load": load}) is not None) is is_busy
