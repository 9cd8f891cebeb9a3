"""What a burn-in accuses: a GPU that is slow under load, a GPU that DCGM fails; and what it does
not: settings, skipped tests, a report of another shape."""

from __future__ import annotations

import copy
import json

import pytest
from burn_in_results import CLOCKS, stream
from local_fleet import PROJECT

from unhang.core.durations import parse_duration
from unhang.core.errors import UserError
from unhang.core.schemas.check import check_schema
from unhang.core.schemas.shapes import read_schema
from unhang.smoke.burn_in import read_dcgm, with_burn_in
from unhang.smoke.experiments import worth_trying
from unhang.smoke.group import SessionOptions
from unhang.smoke.node_plans import Member, Request, plan_group
from unhang.smoke.render import render_junit, render_table
from unhang.smoke.result import judge
from unhang.smoke.smoke_folder import StepInputs, next_step

ANSWERS = PROJECT / "tests" / "fixtures" / "dcgm"


def recorded(name):
    return json.loads((ANSWERS / f"{name}.json").read_text())


def judged(**node):
    """The result of a node, which fits its schema and can be shown."""
    result = judge([stream(**node)])
    assert list(check_schema(result, read_schema("smoke-1"))) == []
    assert render_table(result) and render_junit(result)
    return result


def test_the_healthy_pass_with_their_speed_clocks_and_what_held_them_back():
    result = judged(dcgm={"answer": recorded("4-pass")})
    assert (result["verdict"], result["burn_in"]["dcgm"][0]["verdict"]) == ("pass", "pass")
    text = render_table(result)
    assert (
        "rank 3 on gpu001: 4,000 results compared; TFLOP/s: bfloat16 700; 1700 MHz, 690 W, 60 °C,"
        " clocks held back by power cap 90%" in text
    )
    assert "dcgmi diag -r 1 on gpu001: pass\n" in text


def test_a_gpu_that_is_slow_under_load_is_named_once_with_its_clocks():
    usual, low = (
        {name: {"results": 3000, "tflop_s": speed} for name in ("bfloat16", "int8")}
        for speed in (700.0, 500.0)
    )
    others = {f"rank{rank}": {"types": usual, "clocks": CLOCKS} for rank in (0, 1, 3)}
    slow = {
        "types": low,
        "clocks": {**CLOCKS, "sm_mhz": 1210.0, "held_back": {"hardware slowdown": 0.5}},
    }
    result = judged(**others, rank2=slow)
    [suspect] = result["suspects"]
    assert (result["verdict"], suspect["host"], suspect["rank"], suspect["phase"]) == (
        "fail",
        "gpu001",
        2,
        "burn_in",
    )
    assert (
        suspect["why"]
        == "40% slower than the median of 4 GPUs in bfloat16: 1210 MHz, 690 W, 60 °C, clocks held"
        " back by hardware slowdown 50%"
    )
    assert worth_trying(result) is None, "no setting of NCCL makes a product right"


@pytest.mark.parametrize(
    ("name", "dcgm", "words"),
    [
        ("2-pass", "pass", None),
        ("2-blacklist", "incomplete", "Blacklist: "),
        ("2-skip", "incomplete", "PCIe: skip"),
        ("3-pass", "pass", None),
        ("3-memory-fails", "fail", "GPU Memory: GPU 1: 3 double bit ECC errors were found"),
        ("3-denylist", "incomplete", "Denylist: "),
        ("3-skip", "incomplete", "PCIe: skip"),
        ("3-warn", "pass", None),
        ("3-not-run", "not made", "could not be run while DCGM is paused"),
        ("4-pass", "pass", None),
        ("4-persistence-mode", "incomplete", "software: Persistence Mode: "),
        ("4-pcie-fails", "fail", "pcie: GPU 1 runs at PCIe link width 8"),
        ("4-skip", "incomplete", "memory: skip"),
        ("4-all-skipped", "incomplete", "memory: skip"),
        ("4-denylist", "incomplete", "software: Denylist: "),
    ],
)
def test_an_answer_of_each_version_of_dcgm_is_read_and_only_a_failed_gpu_is_accused(
    name, dcgm, words
):
    result = judged(
        dcgm={"answer": recorded(name), "code": 226 if "fail" in name or "list" in name else 0}
    )
    [row] = result["burn_in"]["dcgm"]
    assert row["verdict"] == dcgm, row
    assert words is None or any(words in text for text in row["failed"] + row["notes"]), row
    assert bool(result["suspects"]) == (dcgm == "fail") == (result["verdict"] == "fail")
    assert all(suspect["why"].startswith("dcgmi diag: " + words) for suspect in result["suspects"])


def test_every_recorded_answer_is_read_by_a_test():
    read = next(
        mark
        for mark in (
            test_an_answer_of_each_version_of_dcgm_is_read_and_only_a_failed_gpu_is_accused.pytestmark
        )
        if mark.name == "parametrize"
    ).args[1]
    assert {row[0] for row in read} == {path.stem for path in ANSWERS.glob("*.json")}


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (
            "Error: unable to establish a connection to the specified host: localhost",
            255,
            "code 255: Error: unable to establish a connection",
        ),
        ({"tests": []}, 0, "code 0: no test in it"),
        ({"DCGM Diagnostic": {"test_categories": "all"}}, 124, "code 124: no test in it"),
    ],
)
def test_a_diagnosis_that_was_not_made_says_why_and_decides_nothing(answer, code, words):
    result = judged(dcgm={"answer": answer, "code": code})
    assert (result["verdict"], result["burn_in"]["dcgm"][0]["verdict"]) == ("pass", "not made")
    assert words in result["burn_in"]["dcgm"][0]["notes"][0]


def test_no_pass_is_read_into_an_answer_that_broke_off_or_uses_other_words():
    answer = recorded("3-pass")
    assert [
        read_dcgm("a", {"answer": answer, "code": code})["verdict"] for code in (0, None, 124)
    ] == ["pass", "incomplete", "incomplete"]
    broken = copy.deepcopy(answer)
    test = broken["DCGM GPU Diagnostic"]["test_categories"][1]["tests"][0]
    test["results"][0]["status"] = "Fine"
    assert read_dcgm("a", {"answer": broken, "code": 0})["verdict"] == "incomplete"
    del test["results"][0]["status"]
    assert read_dcgm("a", {"answer": broken, "code": 0})["verdict"] == "incomplete"


HOSTILE = [
    {
        "DCGM Diagnostic": {
            "test_categories": [
                {
                    "category": ["x"],
                    "tests": [{"name": {"a": 1}, "results": [{"status": 7, "warnings": 5}]}],
                }
            ]
        }
    },
    {
        "DCGM Diagnostic": {
            "test_categories": [
                {
                    "tests": (
                        [
                            {
                                "name": "a" * 101,
                                "results": [{"status": "Fail", "warnings": "\x1b[31m" * 900}],
                            }
                        ]
                        * 2100
                    )
                }
            ]
        }
    },
    {
        "DCGM GPU Diagnostic": {
            "test_categories": [7, None, {"tests": [None, {"results": {"status": "Pass"}}]}],
            "version": ["3"],
        },
        "metadata": 7,
    },
]


ODD = [
    {"types": [1], "left_out": 7, "clocks": "x"},
    {
        "types": {"a": 5, "b" * 99: {"tflop_s": "1", "results": []}},
        "clocks": {"held_back": {"x": "y"}},
    },
    {
        "types": {"bfloat16": {"tflop_s": -1e300, "results": 1e300}},
        "clocks": {"sm_mhz": float("inf")},
    },
]


@pytest.mark.slow
@pytest.mark.parametrize("answer", HOSTILE)
@pytest.mark.parametrize("found", ODD)
def test_a_report_of_another_shape_breaks_nothing(answer, found):
    result = judged(dcgm={"answer": answer, "code": "0", "level": "1"}, rank0=found)
    assert "\x1b" not in render_table(result)
    assert result["burn_in"]["dcgm"][0]["verdict"] != "pass"


def test_the_plan_has_the_burn_in_and_time_for_it(tmp_path):
    request = with_burn_in(Request(phases=("all_reduce",), total_timeout_s=600), 1800)
    [plan] = plan_group(request, [Member("gpu001", 8)], "127.0.0.1", 1)
    assert (plan.document["phases"], plan.document["burn_in_s"], plan.document["backend"]) == (
        ["all_reduce", "burn_in"],
        1800,
        "nccl",
    )
    assert plan.document["total_timeout_s"] >= 600 + 1800 + 300
    assert with_burn_in(Request(backend="gloo"), 5).backend == "gloo"
    assert with_burn_in(Request(), 5).phases[-3:] == ("pace", "bandwidth", "burn_in")
    (tmp_path / "surveys").mkdir()
    (tmp_path / "hosts.json").write_text('{"hosts": ["gpu001"]}')
    interface = {"name": "eth0", "up": True, "kind": "physical", "addresses": ["10.0.0.1/24"]}
    answer = {
        "e": "survey",
        "interfaces": [interface],
        "routes": [{"dst": "10.0.0.0/24", "dev": "eth0"}],
        "gpus": [{"model": "H100"}],
        "in_use": [],
    }
    (tmp_path / "surveys" / "gpu001.json").write_text(json.dumps(answer))
    assert next_step(tmp_path, StepInputs(request, SessionOptions()))["limit_s"] >= 600 + 1800 + 300


def test_a_time_is_read_with_its_unit_or_refused():
    assert [parse_duration(text, "--burn-in") for text in ("90", "90s", "30m", "1.5h")] == [
        90,
        90,
        1800,
        5400,
    ]
    for text in ("soon", "0s", "-5", "8d", "900h", "٣s", "1e3"):
        with pytest.raises(
            UserError, match="--burn-in: expected a time such as 90s, 30m or 2h, up to a week"
        ):
            parse_duration(text, "--burn-in")
