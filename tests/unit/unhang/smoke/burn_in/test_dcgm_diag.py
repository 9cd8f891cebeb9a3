"""What `dcgmi diag -j` of DCGM 2, 3 and 4 says of a node in a burn-in: results that fail a GPU, results that fail none, and skipped tests, which are never a
pass."""

from __future__ import annotations

import copy
import json

import pytest
from burn_in_events import healthy
from local_fleet import PROJECT

from unhang.act.gate.outcome import burn_in_summary
from unhang.core.schemas.check import check_schema
from unhang.core.schemas.shapes import read_schema
from unhang.smoke.burn_in.events import parse_burn_in
from unhang.smoke.burn_in.render import render_burn_in
from unhang.smoke.burn_in.verdict import judge_burn_in

ANSWERS = PROJECT / "tests" / "fixtures" / "dcgm"


def recorded(name):
    return json.loads((ANSWERS / f"{name}.json").read_text())


def burned(answer, code=0):
    """The document of a healthy burn-in before which dcgmi answered so."""
    begin, *rest = healthy()
    asked = {"e": "dcgm", "host": "gpu001", "level": 1, "code": code, "seconds": 4.0, "answer": answer}
    events = parse_burn_in([json.dumps(event).encode() for event in (begin, asked, *rest)])
    document = judge_burn_in(events, "gpu001", {})
    assert list(check_schema(document, read_schema("burn-in-1"))) == []
    return document


@pytest.mark.parametrize(
    ("name", "verdict", "dcgm", "denylist"),
    [
        ("2-pass", "pass", "pass", "pass"),
        ("2-blacklist", "not proved", "fail", "fail"),
        ("2-skip", "pass", "incomplete", "pass"),
        ("3-pass", "pass", "pass", "pass"),
        ("3-memory-fails", "fail", "fail", "pass"),
        ("3-denylist", "not proved", "fail", "fail"),
        ("3-skip", "pass", "incomplete", "pass"),
        ("3-warn", "pass", "pass", "pass"),
        ("3-not-run", "pass", "not made", None),
        ("4-pass", "pass", "pass", "pass"),
        ("4-persistence-mode", "not proved", "fail", "pass"),
        ("4-pcie-fails", "fail", "fail", "pass"),
        ("4-skip", "pass", "incomplete", "pass"),
        ("4-all-skipped", "pass", "incomplete", None),
        ("4-denylist", "not proved", "fail", "fail"),
    ],
)
def test_an_answer_of_each_version_is_read(name, verdict, dcgm, denylist):
    document = burned(recorded(name), 226 if dcgm == "fail" else 0)
    assert (document["verdict"], document["dcgm"]["verdict"], document["dcgm"]["denylist"]) == (verdict, dcgm, denylist)
    assert burn_in_summary(document)["dcgm"] == dcgm


def test_every_recorded_answer_is_read_by_a_test():
    read = next(mark for mark in test_an_answer_of_each_version_is_read.pytestmark if mark.name == "parametrize").args[1]
    assert {row[0] for row in read} == {path.stem for path in ANSWERS.glob("*.json")}


@pytest.mark.parametrize(
    ("name", "gpu", "message"),
    [
        ("3-memory-fails", 1, "dcgmi diag: GPU Memory on GPU 1: GPU 1: 3 double bit ECC errors were found"),
        ("4-pcie-fails", 1, "dcgmi diag: pcie on GPU 1: GPU 1 runs at PCIe link width 8, expected 16."),
    ],
)
def test_a_gpu_that_fails_is_named_with_dcgms_own_words(name, gpu, message):
    document = burned(recorded(name), 226)
    [one] = document["failures"]
    assert (one["gpu"], one["kind"]) == (gpu, "DCGM")
    assert one["why"].startswith(message)
    assert [row["gpu"] for row in document["gpus"] if row["failed"]] == [gpu]


@pytest.mark.parametrize("name", ["2-blacklist", "3-denylist", "4-denylist", "4-persistence-mode"])
def test_a_setting_that_dcgm_does_not_bear_accuses_no_gpu_and_proves_none(name):
    document = burned(recorded(name), 226)
    assert document["failures"] == []
    assert any(gap.startswith("dcgmi diag: ") and ("list" in gap or "disabled" in gap) for gap in document["gaps"])


@pytest.mark.parametrize(("name", "skipped"), [("2-skip", "PCIe, GPU Memory"), ("3-skip", "PCIe"), ("4-skip", "memory"), ("4-all-skipped", "memory, pcie")])
def test_a_skipped_test_is_named_and_never_reads_as_a_pass(name, skipped):
    document = burned(recorded(name))
    assert f"dcgmi diag skipped {skipped}: they proved nothing" in document["notes"]
    text = render_burn_in(document)
    assert "dcgmi diag, level 1: incomplete" in text
    assert "dcgmi diag, level 1: pass" not in text


def test_a_warning_is_shown_and_fails_nobody():
    assert "dcgmi diag: GPU Memory on GPU 0: GPU 0 has pending retired pages." in burned(recorded("3-warn"))["notes"]


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ("Error: unable to establish a connection to the specified host: localhost", 255, "its answer is no JSON: Error: unable to establish a connection"),
        ("", 1, "its answer is no JSON: it printed nothing"),
        ({"tests": []}, 0, "its answer is in no form of DCGM 2, 3 or 4"),
        ({"DCGM Diagnostic": {"test_categories": "all"}}, 0, "it ended with code 0 and reported no test"),
        ({"DCGM GPU Diagnostic": {"version": "3.3.5", "runtime_error": "The module Diag is on the denylist of the host engine."}}, 1, "The module Diag is on"),
        ({"DCGM Diagnostic": {"test_categories": []}}, None, "it gave no answer in its time and was ended"),
    ],
)
def test_what_was_not_made_says_why_and_decides_nothing(answer, code, message):
    document = burned(answer, code)
    assert (document["verdict"], document["dcgm"]["verdict"]) == ("pass", "not made")
    assert any(note.startswith("dcgmi diag, level 1: not made: " + message) for note in document["notes"]), document["notes"]


def test_no_pass_is_read_into_an_answer_that_broke_off_or_uses_other_words():
    broken = copy.deepcopy(recorded("3-pass"))
    assert burned(broken, None)["dcgm"]["verdict"] == "incomplete"
    assert burned(broken, 3)["dcgm"]["verdict"] == "incomplete"
    broken["DCGM GPU Diagnostic"]["test_categories"][1]["tests"][0]["results"][0]["status"] = "Fine"
    assert burned(broken)["dcgm"]["verdict"] == "incomplete"
    del broken["DCGM GPU Diagnostic"]["test_categories"][1]["tests"][0]["results"][0]["status"]
    assert burned(broken)["dcgm"]["verdict"] == "incomplete"


HOSTILE = [
    {"DCGM Diagnostic": {"test_categories": [{"category": ["x"], "tests": [{"name": {"a": 1}, "results": [{"status": 7, "gpu_id": "9" * 4000}]}]}]}},
    {"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "a" * 101, "results": [{"status": "Pass", "gpu_ids": "1,x,-2,٣"}]}] * 2100}]}},
    {"DCGM GPU Diagnostic": {"test_categories": [7, None, {"tests": [None, {"results": {"status": "Pass"}}]}], "version": ["3"]}, "metadata": 7},
]


@pytest.mark.parametrize("answer", HOSTILE)
def test_an_answer_that_dcgm_would_not_give_breaks_nothing_and_proves_nothing(answer):
    dcgm = burned(answer)["dcgm"]
    assert len(dcgm["tests"]) <= 2000
    assert all(len(row["test"]) <= 100 for row in dcgm["tests"])
    assert dcgm["verdict"] in ("incomplete", "not made", "pass")


@pytest.mark.parametrize("changed", [{"level": 9}, {"code": "0"}, {"answer": 7}, {"answer": "x" * 3000}, {"seconds": -1}])
def test_an_event_of_another_shape_is_none_of_a_burn_in(changed):
    asked = {"e": "dcgm", "level": 1, "code": 0, "seconds": 4.0, "answer": {}, **changed}
    [event] = parse_burn_in([json.dumps(asked).encode()])
    assert event["e"] == "unfit"
