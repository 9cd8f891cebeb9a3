"""Batches of logs that the signatures were learnt from are still answered, as far as lines of
programs decide them.

docs/diagnosis-scores.md has their blind scores, which differ.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from diagnosis_scores import score_folder, summary

BATCHES = Path(__file__).parents[1] / "fixtures" / "diagnose_batches"
RIGHT_AT_LEAST = {
    "1": 28,
    "2": 31,
    "3": 27,
    "4": 24,
    "5": 27,
    "6": 29,
    "7": 11,
    "8": 17,
    "9": 24,
    "10": 35,  # 019: four silent ranks of six; a sentence without a rank named the right cause
    "11": 26,
    "12": 25,
    "13": 30,
    "14": 25,
    "15": 36,
    "16": 32,
}


@pytest.mark.parametrize("batch", sorted(RIGHT_AT_LEAST))
def test_learnt_batch_is_answered_as_well_as_programs_lines_allow(batch):
    numbers = summary(score_folder(BATCHES / batch))
    assert numbers["answerable"]["top1"] >= RIGHT_AT_LEAST[batch]
    assert numbers["healthy"]["false_alarms"] == 0


def test_batches_are_answered_also_while_each_is_left_out():
    """An estimate for unseen logs, over all batches: docs/diagnosis-scores.md has the numbers."""
    numbers = summary(score_folder(BATCHES, leave_one_out=True))
    assert (
        numbers["answerable"]["cases"] == 521
        and numbers["answerable"]["top1_rate"] >= 0.70
        and numbers["answerable"]["top3_rate"] >= 0.76
    )
    loud, asked = numbers["at_error_level"], numbers["undecided"]
    assert (
        loud["answers"] >= 100
        and (loud["wrong"] - loud["of_these_plausible"]) / loud["answers"] <= 0.02
        and loud["wrong"] / loud["answers"] <= 0.10
    )
    # by words that a step and the cause share; 0.53 while a table of 963 lines had steps for what a
    # log leaves open. Now the first one is to look at the job itself, which shares no word with it.
    assert asked["would_decide"] / asked["cases"] >= 0.39


def test_each_learnt_batch_keeps_its_first_day():
    for batch in RIGHT_AT_LEAST:
        first = (BATCHES / batch / "first-day.txt").read_text(encoding="utf-8")
        assert "answerable from the log" in first and "missed" in first
