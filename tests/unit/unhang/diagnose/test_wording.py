"""What a log's words alone make likely: never more than a warning, nothing for a few lines or a healthy job, and nothing that stands clear is overturned."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.diagnose.diagnosing import diagnose
from unhang.diagnose.learning import all_solved, learn, render_wording
from unhang.diagnose.scoring import score_folder, summary, withheld
from unhang.diagnose.wording import TABLE, load_wording, parse_wording, resembling, words_in

FIXTURES = Path(__file__).parents[3] / "fixtures"
BATCHES = FIXTURES / "diagnose_batches"


def test_table_of_words_is_what_the_solved_logs_give():
    solved = all_solved([*sorted(BATCHES.iterdir()), FIXTURES / "diagnose"])
    assert TABLE.read_text(encoding="utf-8") == render_wording(learn(solved)), "write it anew: make generated"


def test_table_reads_back_as_it_was_written():
    table = learn([("oom", frozenset({"killed", "memory", "cgroup"})), ("oom", frozenset({"memory", "killed"})), ("disk_full", frozenset({"space", "left"}))])
    again = parse_wording(render_wording(table))
    assert again.documents == 3 and again.found_in == {"killed": 2, "memory": 2}
    assert again.sums["oom"].keys() == {"killed", "memory"} and again.sums["disk_full"] == {}


def test_words_are_small_letters_without_what_is_left_of_addresses():
    assert words_in(b"gpu7:9:9 [0] NCCL WARN Call to ibv_reg_mr failed at 0xfade deadbeef") == {"gpu", "nccl", "warn", "call", "ibv_reg_mr", "failed"}


def test_few_words_resemble_nothing():
    assert resembling({"nccl", "timeout", "watchdog"}, load_wording()) == []


def test_solved_log_that_is_left_out_pulls_no_more_towards_its_cause():
    log = frozenset(f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyz") | frozenset(f"other{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")
    rest = [("oom", frozenset({*list(log)[:20], "memory"})), ("disk_full", frozenset({*list(log)[20:], "space"})), ("oom", frozenset({"memory", "space"}))]
    table = learn([("disk_full", log), *rest])
    whole, without = ({one.cause: one.share for one in resembling(log, used)} for used in (table, table.without([("disk_full", log)])))
    assert whole["disk_full"] > without["disk_full"]


def test_what_words_alone_make_likely_is_a_warning_at_most():
    without = withheld(BATCHES / "8", [])
    answers = [diagnose([str(log)], without=without) for log in sorted((BATCHES / "8").glob("*/log.txt"))]
    by_words = [cause for one in answers for cause in one["causes"] if {line["file"] for line in cause["evidence"]} == {"resembles"}]
    assert by_words and all("have words like these" in cause["evidence"][0]["says"] for cause in by_words)
    assert {cause["severity"] for cause in by_words} <= {"info", "warning"}


@pytest.mark.parametrize("batch", ["4", "6"])
def test_logs_are_answered_also_without_what_was_learnt_from_them(batch):
    """What is expected of logs that nobody has seen; docs/diagnosis-method.md has the numbers of all batches."""
    numbers = summary(score_folder(BATCHES / batch, diagnose, leave_one_out=True))
    assert numbers["answerable"]["top1_rate"] >= 0.70
    assert numbers["answerable"]["top3_rate"] >= 0.80
    assert numbers["at_error_level"]["wrong"] - numbers["at_error_level"]["of_these_plausible"] <= 1
