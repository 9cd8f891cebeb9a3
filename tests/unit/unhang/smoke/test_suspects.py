"""From the reports of ranks and agents to the suspects; reports may be incomplete, contradictory or
hostile."""

from __future__ import annotations

import json

import pytest
from foreign_schemas import junit_faults

from unhang.core.schemas.check import check_schema
from unhang.core.smoke_result import document_of, smoke_result
from unhang.smoke.experiments import plan_experiments, worth_trying
from unhang.smoke.render import render_junit, render_table
from unhang.smoke.result import judge
from unhang.smoke.streams import Stream, parse_events

PHASES = ("environment", "binding", "rendezvous", "consistency", "init")


def ok(rank, *phases):
    """Events of a rank that went through these phases."""
    events = []
    for phase in phases:
        events += [
            {"e": "phase_begin", "rank": rank, "phase": phase},
            {
                "e": "phase_end",
                "rank": rank,
                "phase": phase,
                "status": "ok",
                "duration_s": 0.1,
                "result": {},
            },
        ]
    return events


def stall(rank, seq, **more):
    """A rank that waits in a step of all_reduce."""
    fields = {
        "phase": "all_reduce",
        "step": "all_reduce float32",
        "seq": seq,
        "done": seq - 1,
        "state": "S",
        "reason": "deadline",
        "waited_s": 10.2,
        "stack": "x",
    }
    return [
        {"e": "phase_begin", "rank": rank, "phase": "all_reduce"},
        {"e": "stall", "rank": rank, **fields, **more},
    ]


def end(status, rank, phase, message="no", **result):
    """A phase that ended otherwise."""
    return [
        {"e": "phase_begin", "rank": rank, "phase": phase},
        {
            "e": "phase_end",
            "rank": rank,
            "phase": phase,
            "status": status,
            "message": message,
            "result": result,
        },
    ]


def node(rank, *events, ended=True, problem=None):
    """A node with one rank."""
    shown = [*ok(rank, *PHASES), *(event for group in events for event in group)]
    return Stream(
        f"gpu{rank:03d}", (rank,), tuple(shown + ([{"e": "node_end"}] if ended else [])), problem
    )


def blamed(*streams):
    """(result, [(host, rank)])."""
    judged = judge(streams)
    result = document_of(judged)
    assert list(check_schema(result, "smoke-1")) == []
    render_table(judged)
    assert junit_faults(render_junit(judged)) == []
    assert not any("unhang audit --host" in row["next"] for row in result["suspects"]), (
        "the audit would refuse a limit without an inventory"
    )
    return result, [(row["host"], row["rank"]) for row in result["suspects"]]


def test_the_rank_that_never_entered_is_to_blame_and_not_those_that_wait():
    result, found = blamed(node(0, stall(0, 7)), node(1, stall(1, 6)), node(2, stall(2, 7)))
    assert found == [("gpu001", 1)]
    assert "never entered collective 7" in result["suspects"][0]["why"]


def test_when_all_entered_and_none_left_nobody_is_blamed_but_the_way_between():
    result, found = blamed(node(0, stall(0, 7)), node(1, stall(1, 7)))
    assert found == [(None, None)]
    assert "all 2 ranks entered collective 7" in result["suspects"][0]["why"]


def test_a_death_outranks_the_errors_that_it_causes():
    crash = [
        {"e": "exit", "rank": 2, "code": -11, "signal": "SIGSEGV", "phase": "all_reduce", "seq": 6}
    ]
    echo = end("error", 0, "all_reduce", "RuntimeError: connection closed by peer")
    result, found = blamed(node(0, echo), node(1, stall(1, 7)), node(2, crash))
    assert found == [("gpu002", 2)]
    assert "SIGSEGV" in result["suspects"][0]["why"]


def test_errors_alone_are_told_when_nothing_better_is_known():
    result, found = blamed(
        node(0, end("error", 0, "all_reduce", "RuntimeError: NCCL error")),
        node(1, end("error", 1, "all_reduce", "RuntimeError: NCCL error")),
    )
    assert found == [("gpu000", 0), ("gpu001", 1)]
    assert "NCCL error" in result["suspects"][0]["why"]


def test_a_process_that_survives_sigkill_makes_its_node_unfit():
    stuck = [{"e": "unkillable", "rank": 1, "pid": 77, "state": "D", "wchan": "nv_open"}]
    result, found = blamed(
        node(0, stall(0, 7)), node(1, stall(1, 7, state="D", wchan="nv_open"), stuck)
    )
    assert found[0] == ("gpu001", 1)
    assert "its process 77 survives SIGKILL" in result["suspects"][0]["why"]
    assert "nv_open" in result["suspects"][0]["why"]
    assert result["unfit"] == ["gpu001"]


def test_a_process_in_state_d_is_reported_with_the_place_in_the_kernel():
    result, _ = blamed(node(0, stall(0, 7)), node(1, stall(1, 7, state="D", wchan="uvm_ioctl")))
    assert "hangs in the kernel (state D, in uvm_ioctl)" in result["suspects"][0]["why"]


@pytest.mark.parametrize("echo", [
    stall(0, 7, state="D", wchan="folio_wait", reason="witness"),
    [{"e": "exit", "rank": 0, "code": -6, "signal": "SIGABRT", "phase": "all_reduce", "seq": 7}],
    [{"e": "exit", "rank": 0, "code": -10, "signal": "SIGUSR1", "phase": "all_reduce", "seq": 7}],
    [{"e": "exit", "rank": 0, "code": 1, "signal": None, "phase": "all_reduce", "seq": 7}],
    end("error", 0, "all_reduce", "RuntimeError: connection reset by peer"),
], ids=["a witness that reads a page", "the watchdog's abort", "our own signal",
"code 1 without a word", "an error"])  # fmt: skip
def test_the_stopped_rank_is_named_alone_whatever_its_peers_do_about_it(echo):
    _, found = blamed(
        node(0, echo),
        node(1, stall(1, 7, state="T", reason="stopped")),
        node(2, stall(2, 7, reason="witness")),
    )
    assert found == [("gpu001", 1)]


def test_a_rank_that_hangs_before_it_meets_the_others_is_named_even_when_all_do():
    def hung(rank):
        stuck = stall(rank, 0, step="start the interpreter")[1] | {
            "phase": "environment",
            "waited_s": 30.1,
        }
        return Stream(
            f"gpu{rank:03d}",
            (rank,),
            ({"e": "phase_begin", "rank": rank, "phase": "environment"}, stuck, {"e": "node_end"}),
        )

    result, found = blamed(*(hung(rank) for rank in range(3)))
    assert found == [("gpu000", 0), ("gpu001", 1), ("gpu002", 2)]
    assert result["suspects"][0]["why"].startswith(
        "did not get past start the interpreter within 30 s"
    )


def test_an_abort_is_told_when_nothing_else_explains_it():
    crash = [
        {"e": "exit", "rank": 1, "code": -6, "signal": "SIGABRT", "phase": "all_reduce", "seq": 6}
    ]
    _, found = blamed(node(0, end("error", 0, "all_reduce", "connection closed")), node(1, crash))
    assert found == [("gpu001", 1)]


def test_a_node_that_was_never_there_explains_no_abort_of_others():
    crash = [
        {"e": "exit", "rank": 1, "code": -6, "signal": "SIGABRT", "phase": "all_reduce", "seq": 6}
    ]
    _, found = blamed(
        node(0), node(1, crash), Stream("gpu009", (), (), "cannot be reached by ssh: timed out")
    )
    assert found == [("gpu009", None), ("gpu001", 1)]


def test_a_witness_in_state_d_is_a_hint_where_there_is_nothing_better():
    result, found = blamed(
        node(0, stall(0, 7)), node(1, stall(1, 7, state="D", wchan="nv_open", reason="witness"))
    )
    assert found == [("gpu001", 1)]
    assert "nv_open" in result["suspects"][0]["why"]


def test_results_that_are_cut_off_are_reported_and_the_others_stand():
    result, found = blamed(node(0, stall(0, 7)), node(1, ended=False))
    assert found == [("gpu001", None)]
    assert "cut off" in result["suspects"][0]["why"]
    assert result["hosts"][0]["ended"] is True


def test_a_node_that_could_not_be_asked_is_a_suspect_and_the_verdict_a_failure_of_it_alone():
    passed = node(0, [{"e": "rank_end", "rank": 0}])
    result, found = blamed(passed, Stream("gpu009", (), (), "cannot be reached by ssh: timed out"))
    assert (found, result["verdict"]) == ([("gpu009", None)], "fail")


def test_who_receives_wrong_data_from_everybody_is_told_from_who_sends_it():
    wrong = {"wrong": 5, "wrong_from": {"0": 1, "2": 2, "3": 2}}
    _, found = blamed(node(0), node(1, end("fail", 1, "all_gather", **wrong)), node(2), node(3))
    assert found == [("gpu001", 1)]
    sends = [
        node(rank, end("fail", rank, "all_gather", wrong=1, wrong_from={"2": 1}))
        for rank in range(4)
    ]
    _, found = blamed(*sends)
    assert found == [("gpu002", 2)]


def test_wrong_sums_everywhere_and_right_data_blame_nobody():
    _, found = blamed(
        *(
            node(rank, end("fail", rank, "all_reduce", wrong=4, wrong_from={"unknown": 4}))
            for rank in range(3)
        )
    )
    assert found == [(None, None)]


def test_missing_ranks_are_named_by_those_that_wait_for_them():
    waiting = [
        Stream(
            f"gpu{rank:03d}",
            (rank,),
            (
                *ok(rank, "environment", "binding"),
                *end("fail", rank, "rendezvous", missing=[2]),
                {"e": "node_end"},
            ),
        )
        for rank in (0, 1)
    ]
    _, found = blamed(
        *waiting,
        Stream(
            "gpu002",
            (2,),
            ({"e": "phase_begin", "rank": 2, "phase": "environment"}, {"e": "node_end"}),
        ),
    )
    assert found == [("gpu002", 2)]


@pytest.mark.parametrize(
    "values, expected",
    [
        ({"2.28.9": [0, 1, 3], "2.27.3": [2]}, [2]),
        ({"2.28.9": [0, 1], "2.27.3": [2, 3]}, [0, 1, 2, 3]),
    ],
)
def test_of_values_that_differ_the_minority_is_named_and_both_sides_when_there_is_none(
    values, expected
):
    mismatch = {"differences": [{"name": "NCCL", "values": values}], "binding": []}
    _, found = blamed(
        *(node(rank, end("fail", rank, "consistency", **mismatch)) for rank in range(4))
    )
    assert sorted(rank for _, rank in found) == expected


def test_a_node_cannot_speak_for_another_nodes_rank():
    lines = [json.dumps({"e": "exit", "rank": 1, "code": -9, "signal": "SIGKILL"}).encode()]
    assert list(parse_events(lines, (0,))) == []


def test_escapes_of_a_node_do_not_reach_the_terminal():
    result, _ = blamed(node(0, end("fail", 0, "ddp", "\x1b[2Jall is well\u202e")))
    text = render_table(smoke_result(result))
    assert "\x1b" not in text and "\u202e" not in text


def test_under_nccl_each_way_between_gpus_is_switched_off_once():
    changes = [experiment.environment for experiment in plan_experiments("nccl", ["ib1"])]
    assert {"NCCL_P2P_DISABLE": "1"} in changes
    assert {"NCCL_SHM_DISABLE": "1"} in changes
    assert {"NCCL_NVLS_ENABLE": "0"} in changes
    assert {"NCCL_IB_DISABLE": "1"} in changes
    assert {"NCCL_ALGO": "Ring"} in changes
    assert {"NCCL_ALGO": "Tree"} in changes
    assert {"NCCL_SOCKET_IFNAME": "ib1"} in changes
    assert all(len(change) <= 1 for change in changes)


def test_what_was_answered_exactly_needs_no_experiment():
    result, _ = blamed(
        *(
            node(rank, end("fail", rank, "consistency", differences=[], binding=[]))
            for rank in range(2)
        )
    )
    assert worth_trying(smoke_result(result)) is None
