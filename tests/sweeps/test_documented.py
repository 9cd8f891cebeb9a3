"""Symptoms that vendors' pages document are answered as well as on the day that they were learnt;
docs/diagnosis-scores.md has the blind score."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from documented import answer, read_cases

from unhang.jobs.diagnose.matching.signatures import load_causes

FIRST_AT_LEAST = 465  # of 540
PLAUSIBLE_ERRORS = {
    "k3s-insufficient-driver-no-runtime-class"
}  # "driver version is insufficient" alone: its label calls an old driver as probable as a container without GPUs
# the page says that nothing has to be done at once; the row is only replaced when the GPU is reset
ALARMS_AT_MOST = {"xid-63-row-marked"}


@pytest.fixture(scope="module")
def answers():
    with tempfile.TemporaryDirectory() as folder:
        return [answer(case, Path(folder)) for _file, case in read_cases()]


def test_documented_causes_are_named_first(answers):
    assert sum(one.is_first for one in answers if one.case["cause"]) >= FIRST_AT_LEAST


def test_what_pages_call_harmless_raises_no_alarm(answers):
    assert {
        one.case["id"] for one in answers if one.case["cause"] is None and not one.is_remark
    } <= ALARMS_AT_MOST


def test_no_answer_at_error_level_is_wrong(answers):
    wrong = [one for one in answers if one.is_wrong_error]
    assert [one.case["id"] for one in wrong if not one.is_plausible] == []
    assert {one.case["id"] for one in wrong} <= PLAUSIBLE_ERRORS


def test_cases_name_a_page_and_causes_that_exist():
    cases = [case for _file, case in read_cases()]
    assert len({case["id"] for case in cases}) == len(cases) >= 612
    assert {cause for case in cases for cause in (case["cause"], *case.get("also", []))} - {
        None
    } <= set(load_causes())
    assert all(case["source"].startswith("https://") for case in cases)
