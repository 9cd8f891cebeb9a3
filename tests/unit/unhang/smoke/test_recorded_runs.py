"""Recordings of eight H200 from 2026-11-20 (docs/benchmarks.md): a run that passed and two drills
are judged again."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from unhang.core.schemas.check import check_schema
from unhang.core.schemas.shapes import read_schema
from unhang.core.verdict.streams import Stream
from unhang.smoke.expectations import read_expectations
from unhang.smoke.result import judge

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
    return judge(streams_of(result), read_expectations())


@pytest.mark.parametrize("name", NAMES)
def test_what_was_recorded_and_what_is_judged_from_it_fit_the_schema(name):
    for result in (read(name), judged_again(read(name))):
        assert list(check_schema(result, read_schema("smoke-1"))) == []


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


def test_the_same_run_at_half_its_bandwidth_fails():
    slow = copy.deepcopy(read("smoke"))
    for row in slow["collectives"]:
        row["time_us"] *= 2
    again = judged_again(slow)
    assert again["verdict"] == "fail"
    assert {suspect["phase"] for suspect in again["suspects"]} == {"bandwidth"}


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
