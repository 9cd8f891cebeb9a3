"""Posts of people that the reading of statements was learnt from are still answered; docs/diagnosis-scores.md has the scores of their first day."""

from __future__ import annotations

from pathlib import Path

import pytest
from diagnosis_scores import score_folder, summary

POSTS = Path(__file__).parents[1] / "fixtures" / "diagnose_posts"
RIGHT_AT_LEAST = {"1": 41, "2": 17, "3": 18, "4": 22}


@pytest.mark.parametrize("batch", sorted(RIGHT_AT_LEAST))
def test_learnt_posts_are_answered_and_healthy_ones_are_silent(batch):
    numbers = summary(score_folder(POSTS / batch))
    assert numbers["answerable"]["top1"] >= RIGHT_AT_LEAST[batch]
    assert numbers["healthy"]["cases"] >= 4 and numbers["healthy"]["false_alarms"] == 0
    assert numbers["at_error_level"]["wrong"] == 0


def test_each_batch_of_posts_keeps_its_first_day():
    for batch in RIGHT_AT_LEAST:
        assert "answerable from the log" in (POSTS / batch / "first-day.txt").read_text(encoding="utf-8")
