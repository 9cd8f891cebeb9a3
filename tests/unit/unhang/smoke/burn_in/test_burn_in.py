"""The verdicts of a burn-in on each GPU: the GPU with a wrong bit fails, other events fail none, and an early end is never a pass."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from burn_in_events import done, healthy, reading
from foreign_schemas import junit_faults

from unhang.core.errors import UserError
from unhang.core.schemas.check import check_schema
from unhang.core.schemas.shapes import read_schema
from unhang.smoke.burn_in.local import parse_burn_drill, parse_duration
from unhang.smoke.burn_in.render import render_burn_in, render_burn_in_junit
from unhang.smoke.burn_in.verdict import judge_burn_in
from unhang.smoke.expectations import read_expectations

RATES = read_expectations().counter_rates
PLACE = {"address": "0x7f3a40000292", "where": "row 1, column 13", "expected": "0x4687", "found": "0x46a7", "bits": [5]}


def judged(events):
    document = judge_burn_in(events, "gpu001", RATES)
    assert list(check_schema(document, read_schema("burn-in-1"))) == []
    return document


def but(events, kind, gpu, **changed):
    """The events with one GPU's of a kind changed."""
    return [{**event, **changed} if event["e"] == kind and event["gpu"] == gpu else event for event in events]


def test_gpus_whose_every_result_was_right_pass():
    document = judged(healthy())
    assert (document["verdict"], document["failures"], document["gaps"]) == ("pass", [], [])
    assert document["gpus"][3]["done"]["bfloat16"]["per_s"] == 7.0e14
    assert "verdict: pass" in render_burn_in(document)


def test_one_wrong_bit_names_gpu_type_and_address():
    document = judged([*healthy(), {"e": "wrong", "gpu": 2, "round": 1, "what": "bfloat16", "elements": 1, "places": [PLACE], "why": None}])
    assert document["verdict"] == "fail"
    (one,) = document["failures"]
    assert (one["gpu"], one["kind"]) == (2, "wrong result")
    assert all(word in one["why"] for word in ("bfloat16", "0x7f3a40000292", "expected 0x4687", "found 0x46a7", "bits 5"))
    assert [row["failed"] for row in document["gpus"]] == [False, False, True, False]


def test_what_is_right_when_read_again_was_wrong_all_the_same():
    document = judged([*healthy(), {"e": "wrong", "gpu": 0, "round": 1, "what": "memory", "elements": 1, "places": [], "why": "right when read again"}])
    assert document["verdict"] == "fail"
    assert "memory was wrong and right when read again" in document["failures"][0]["why"]


def inexact(events, *gpus, digest="0001", repeats=True):
    for gpu in gpus:
        changed = {"status": "inexact", "wrong": 9, "places": [PLACE], "repeats": repeats, "digest": digest}
        events = [{**event, **changed} if event["e"] == "type" and event["gpu"] == gpu and event["type"] == "int8" else event for event in events]
    return events


def test_a_first_product_that_one_gpu_alone_has_wrong_fails_that_gpu():
    document = judged(inexact(healthy(), 1))
    assert [(one["gpu"], one["kind"]) for one in document["failures"]] == [(1, "wrong result")]
    assert "3 other GPUs have it right" in document["failures"][0]["why"]


@pytest.mark.parametrize("count", [1, 4])
def test_the_same_wrong_bits_on_all_gpus_may_be_the_library_and_prove_nothing(count):
    document = judged(inexact(healthy(count), *range(count)))
    assert (document["verdict"], document["failures"]) == ("not proved", [])
    assert "int8: results are not exact" in document["gaps"][0]


def test_a_product_that_differs_from_itself_fails_a_gpu_without_peers():
    assert judged(inexact(healthy(1), 0, repeats=False))["failures"][0]["gpu"] == 0


def test_a_type_that_no_gpu_has_is_a_note_and_one_that_some_lack_is_a_gap():
    absent = {"status": "absent", "why": "torch has no such type"}
    everywhere = [{**event, **absent} if event["e"] == "type" and event["type"] == "int8" else event for event in healthy()]
    assert judged(everywhere)["verdict"] == "pass"
    assert "int8: no GPU here has it: torch has no such type" in judged(everywhere)["notes"]
    one = [{**event, **absent} if event["e"] == "type" and event["type"] == "int8" and event["gpu"] == 2 else event for event in healthy()]
    assert judged(one)["verdict"] == "not proved"
    assert "not tried on GPU 2" in judged(one)["gaps"][0]


def test_a_refusal_proves_nothing():
    reason = "GPU 0: expected nobody on it, found processes 4711"
    document = judged([healthy()[0], {"e": "refused", "reasons": [reason]}])
    assert (document["verdict"], document["gaps"]) == ("not proved", [reason])


def test_an_agent_that_ended_without_a_word_proves_nothing():
    assert judged(healthy()[:-1])["verdict"] == "not proved"
    assert judged([])["verdict"] == "not proved"


def test_an_early_end_proves_nothing_and_a_flip_before_it_still_fails():
    assert judged(healthy(reason="SIGTERM"))["gaps"] == ["ended by SIGTERM before its 300 s were over"]
    wrong = {"e": "wrong", "gpu": 0, "round": 1, "what": "int8", "elements": 1, "places": [PLACE], "why": None}
    assert judged([*healthy(reason="SIGTERM"), wrong])["verdict"] == "fail"


def test_a_fault_of_the_driver_fails_the_gpu_and_a_library_that_is_missing_fails_nobody():
    broken = {"e": "failed", "gpu": 1, "round": 3, "message": "CUDA error: uncorrectable ECC error encountered", "fault": True}
    assert judged([*healthy(), broken])["failures"][0]["gpu"] == 1
    document = judged([*healthy(), {**broken, "message": "ModuleNotFoundError: No module named 'torch'", "fault": False}])
    assert (document["verdict"], document["failures"]) == ("not proved", [])


def test_who_hangs_is_who_is_not_in_the_sum_in_which_the_others_wait():
    silent = [{"e": "silent", "gpu": gpu, "phase": "int8" if gpu == 2 else "collective", "seconds": 91.0, "state": "D", "wchan": ""} for gpu in range(4)]
    assert [one["gpu"] for one in judged([*healthy(), *silent])["failures"]] == [2]
    document = judged([*healthy(), *[{**event, "phase": "collective"} for event in silent]])
    assert (document["verdict"], document["failures"]) == ("not proved", [])


def test_a_process_killed_by_somebody_fails_nobody():
    event = {"e": "worker_exit", "gpu": 0, "code": -9, "signal": "SIGKILL", "message": None, "output": []}
    assert judged([*healthy(), event])["gaps"] == ["GPU 0: its process ended with SIGKILL"]


def slowed(rates):
    events = healthy(len(rates))
    for worker, rate in zip(events[-1]["workers"], rates, strict=True):
        worker["done"] = {"bfloat16": done(rate)}
    return events


def test_a_slow_gpu_is_named_with_the_clocks_that_explain_it():
    events = slowed([7.0e14, 7.1e14, 5.0e14, 7.05e14, 6.95e14, 7.0e14, 7.02e14, 6.9e14])
    events[-1]["readings"][2] = reading(2, mhz=1200.0, power=480.0, reasons={"hardware thermal slowdown": 30, "idle": 40})
    document = judged(events)
    (one,) = document["failures"]
    assert (one["gpu"], one["kind"]) == (2, "slow")
    assert "in bfloat16: 1200 MHz (1700)" in one["why"]
    assert "480 W (690)" in one["why"]
    assert one["why"].endswith("clocks held back by hardware thermal slowdown 75%")


def test_gpus_that_differ_as_healthy_ones_do_are_not_slow():
    assert judged(slowed([7.0e14, 7.2e14, 6.8e14, 7.05e14, 6.95e14, 7.0e14, 7.1e14, 6.75e14]))["verdict"] == "pass"


def test_fewer_than_four_gpus_call_none_slow_and_say_so():
    document = judged(slowed([7.0e14, 3.0e14]))
    assert document["verdict"] == "pass"
    assert "fewer than four GPUs: none can be called slow" in document["notes"]


def looked(moved, seconds=300.0, peers=None):
    return healthy(counters=[{"when": "after", "counted_s": seconds, "read": 600, "problem": None, "moved": moved, "peers": peers or {}}])


def test_a_counter_that_rises_far_above_its_normal_rate_names_its_gpu():
    document = judged(looked({"GPU 3 uncorrected memory errors": 2}, peers={"uncorrected memory errors": 4}))
    assert [(one["gpu"], one["kind"]) for one in document["failures"]] == [(3, "counter")]


@pytest.mark.parametrize(
    "moved",
    [
        {"GPU 0 link 3 CRC data errors": 13, "GPU 1 link 4 CRC data errors": 8},
        {"GPU 0 corrected memory errors": 5},
        {"GPU 0 PCIe replays": 100},
        {"GPU 0 link 3 data sent (KiB)": 10**9},
    ],
    ids=["moves on every link of a healthy machine", "no known rate", "within what a link may have in five minutes", "no error"],
)
def test_a_counter_that_moves_in_health_accuses_nobody(moved):
    assert judged(looked(moved))["verdict"] == "pass"


def after(**changed):
    """healthy(), with GPU 1 changed afterwards."""
    events = healthy()
    rows = [dict(row) for row in events[-1]["before"]["settings"]]
    rows[1].update(changed)
    events[-1]["after"] = {"settings": rows, "problem": None}
    return events


def test_a_row_remapped_for_an_error_that_cannot_be_corrected_fails_the_gpu():
    none = {"correctable": 0, "uncorrectable": 0, "pending": 0, "failure": 0}
    events = after(remapped_rows={**none, "uncorrectable": 1, "pending": 1})
    assert {(one["gpu"], one["kind"]) for one in judged(events)["failures"]} == {(1, "remapped rows")}
    assert judged(after(remapped_rows={**none, "correctable": 1}))["verdict"] == "pass"


@pytest.mark.parametrize("changed", [{"power_limit_mw": 500000}, {"processes": [4711]}, {"used_bytes": 40 << 30}, {"persistence_mode": 0}])
def test_gpus_that_are_not_as_they_were_are_not_proved(changed):
    document = judged(after(**changed))
    assert document["verdict"] == "not proved"
    assert document["gaps"][0].startswith("GPU 1: ")


def test_a_gpu_that_is_gone_afterwards_is_not_proved():
    events = healthy()
    events[-1]["after"] = {"settings": events[-1]["before"]["settings"][:3], "problem": None}
    assert judged(events)["gaps"] == ["afterwards NVML knew of 3 GPUs, 4 before: a GPU is gone"]


def test_junit_has_a_failure_for_the_gpu_and_an_error_for_what_is_not_proved():
    wrong = {"e": "wrong", "gpu": 2, "round": 1, "what": "int8", "elements": 1, "places": [PLACE], "why": None}
    suite = ElementTree.fromstring(render_burn_in_junit(judged([*healthy(), wrong])))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "1", "0")
    assert junit_faults(render_burn_in_junit(judged([*healthy(), wrong]))) == []
    refused = ElementTree.fromstring(render_burn_in_junit(judged([{"e": "refused", "reasons": ["somebody is at work"]}])))
    assert junit_faults(render_burn_in_junit(judged([{"e": "refused", "reasons": ["somebody is at work"]}]))) == []
    assert (refused.get("tests"), refused.get("failures"), refused.get("errors")) == ("1", "0", "1")


def test_a_terminal_obeys_nothing_that_a_node_says():
    document = judged([healthy()[0], {"e": "refused", "reasons": ["\x1b[31mred"]}])
    assert "\x1b" not in render_burn_in(document)


@pytest.mark.parametrize("text, seconds", [("90", 90.0), ("90s", 90.0), ("30m", 1800.0), ("1.5h", 5400.0)])
def test_times_are_read_as_people_write_them(text, seconds):
    assert parse_duration(text, "--burn-in") == seconds


@pytest.mark.parametrize("text", ["", "m", "-3m", "0", "30 minutes", "400h", "1e3"])
def test_a_time_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="--burn-in: expected a time such as 90s, 30m or 2h"):
        parse_duration(text, "--burn-in")


def test_a_drill_names_gpu_and_type():
    assert parse_burn_drill("1:int8") == {"gpu": 1, "where": "int8"}
    for text in ("int8", "1:", "1:int4", "gpu1:int8"):
        with pytest.raises(UserError, match="expected GPU:WHERE"):
            parse_burn_drill(text)
