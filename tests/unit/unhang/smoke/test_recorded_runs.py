"""Recordings of eight H200 from 2026-11-20 (docs/benchmarks.md): a run that passed and two drills
are judged again."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest

from unhang.core.schemas.check import check_schema
from unhang.core.smoke_result import document_of, smoke_result
from unhang.smoke.expectations import read_expectations
from unhang.smoke.experiments import experiment_rounds, plan_experiments
from unhang.smoke.render import render_table
from unhang.smoke.result import judge
from unhang.smoke.session import follow
from unhang.smoke.streams import Stream

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "h200x8"
NAMES = ("smoke", "drill-absent", "drill-stopped")
DRILLS = {
    "drill-absent": "never entered collective 4 (all_reduce float32)",
    "drill-stopped": "its process is stopped (state T) before collective 96",
}


def read(name):
    return json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))


def rank_events(result, host, rank, gpu):
    """What one rank reported: its phases with their answers, and where it stood when it stalled."""
    device = {"model": result["group"]["gpu"], "index": rank, "uuid": gpu.split("(")[1].rstrip(")")}
    answers = {
        "environment": {
            name: host[name]
            for name in ("torch", "cuda", "driver", "backend", "executable", "nccl")
        },
        "binding": {"device": device},
    }
    stall = [{"e": "stall", **row} for row in result["evidence"] if row["rank"] == rank]
    for row in result["phases"]:
        status = next(status for status, ranks in row["ranks"].items() if rank in ranks)
        end = {
            "duration_s": row["duration_s"],
            "steps": row["steps"],
            "result": answers.get(row["name"], {}),
        }
        yield {"e": "phase_begin", "rank": rank, "phase": row["name"]}
        if status != "stall":
            yield {"e": "phase_end", "rank": rank, "phase": row["name"], "status": status, **end}
    yield from [{"e": "collective", "rank": rank, **row} for row in result["collectives"]]
    yield from stall or [{"e": "rank_end", "rank": rank}]


def streams_of(result):
    """The one node's stream that leads to this result."""
    [host] = result["hosts"]
    events = [
        event
        for rank, gpu in zip(host["ranks"], host["gpus"], strict=True)
        for event in rank_events(result, host, rank, gpu)
    ]
    uuids = [gpu.split("(")[1].rstrip(")") for gpu in host["gpus"]]
    pairs = {
        f"{row['from']}>{row['to']}": {"via": row["via"], "channels": row["channels"]}
        for row in result["transports"]
    }
    joined = [
        [uuids[row["from"]], uuids[row["to"]]] for row in result["transports"] if row["nvlink"]
    ]
    events += [
        {"e": "transports", "rank": 0, "nvls": False, "pairs": pairs},
        {"e": "nvlink", "pairs": joined},
    ]
    events += [{"e": "evidence", **row} for row in result["nodes"]]
    return [Stream(host["host"], tuple(host["ranks"]), (*events, {"e": "node_end"}))]


def judged_again(result):
    return document_of(judge(streams_of(result), read_expectations()))


@pytest.mark.parametrize("name", NAMES)
def test_what_was_recorded_and_what_is_judged_from_it_fit_the_schema(name):
    for result in (read(name), judged_again(read(name))):
        assert list(check_schema(result, "smoke-1")) == []


def test_a_healthy_run_judged_again_passes_with_every_bandwidth_within_its_expectation():
    recorded = read("smoke")
    again = judged_again(recorded)
    assert (again["verdict"], again["suspects"], again["group"]) == ("pass", [], recorded["group"])
    assert [(row["op"], row["size_bytes"], row["busbw_gb_s"]) for row in again["bandwidth"]] == [
        (row["op"], row["size_bytes"], row["busbw_gb_s"]) for row in recorded["bandwidth"]
    ]
    assert {(row["verdict"], row["source"].split(",")[0]) for row in again["bandwidth"]} == {
        ("pass", "table bandwidth")
    }
    assert {row["label"] for row in again["transports"]} == {"NVLink (P2P/CUMEM)"}
    shown = render_table(smoke_result(again), 60).splitlines()
    assert max(map(len, shown)) <= 60 and "  all_to_all float32 6.8" in "\n".join(shown)


def slowed():
    """The healthy run at half its bandwidth."""
    slow = copy.deepcopy(read("smoke"))
    for row in slow["collectives"]:
        row["time_us"] *= 2
    return slow


XID = {"e": "evidence", "kernel_log": ["NVRM: Xid (PCI:0000:c4:00): 74, NVLink"]}
LOAD = {"e": "load", "cpus": 32, "over_s": 10.0, "runnable": 96.0, "waited": 0.4, "stolen": 0.0}


@pytest.mark.parametrize(
    ("first", "again", "more", "verdict"),
    [
        (slowed, "smoke", (), "error"),
        (slowed, slowed, (), "fail"),
        (slowed, "smoke", (XID,), "fail"),
        ("drill-absent", "smoke", (), "error"),
        ("drill-absent", "drill-absent", (), "fail"),
        ("drill-stopped", "smoke", (), "fail"),
    ],
)
def test_what_a_repeat_cures_is_not_proved_unless_something_else_was_seen(
    first, again, more, verdict
):
    def streams(run, *events):
        [stream] = streams_of(read(run) if isinstance(run, str) else run())
        return [replace(stream, events=(*events, *stream.events))]

    def attempt(*_):
        yield from ()
        return judge(streams(again), read_expectations()).verdict, 1.0

    failed = judge(streams(first, *more, LOAD), read_expectations())
    assert failed.verdict == "fail"
    result = follow(experiment_rounds(failed, plan_experiments("nccl"), attempt), None)
    is_open, is_cured = verdict == "error", again == "smoke"
    assert (result.verdict, result.experiments[0].cured) == (verdict, is_cured)
    assert (len(result.experiments) == 1) is (is_cured or again is slowed)
    assert {suspect.blind for suspect in result.suspects} == {is_open}
    shown = "verdict: not proved: the same again passed; vm had 96 tasks for 32 CPUs"
    assert (shown in render_table(result)) is is_open


@pytest.mark.parametrize("name", DRILLS)
def test_a_drill_names_rank_1_alone_and_accuses_no_counter(name):
    recorded = read(name)
    again = judged_again(recorded)
    assert again["verdict"] == "fail"
    assert again["suspects"] == recorded["suspects"]
    [suspect] = again["suspects"]
    assert suspect["rank"] == 1
    assert suspect["why"].startswith(DRILLS[name])
    assert "rose" not in suspect["why"]


@pytest.mark.parametrize("name", DRILLS)
def test_counters_moved_in_a_drill_and_one_that_is_bad_would_have_been_named(name):
    recorded = read(name)
    [node] = recorded["nodes"]
    assert len(node["nvlink"]) == 288
    assert all(name.endswith(("data sent (KiB)", "data received (KiB)")) for name in node["nvlink"])
    node["nvlink"]["GPU 3 link 7 CRC errors"] = 200_000
    [suspect] = judged_again(recorded)["suspects"]
    assert "GPU 3 link 7 CRC errors rose by 200000" in suspect["why"]
