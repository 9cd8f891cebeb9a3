"""The word model: alone it gives at most a remark, nothing for a few lines or a healthy job, and it changes no clear answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.jobs.diagnose import scoring, word_model
from unhang.jobs.diagnose.diagnosing import diagnose
from unhang.jobs.diagnose.scoring import score_folder, summary, withheld
from unhang.jobs.diagnose.train_word_model import all_solved, learn, project_folders, render_wording, solved_by_labels, solved_cases
from unhang.jobs.diagnose.word_model import ENOUGH_WORDS, TABLE, load_wording, parse_wording, resembling, words_in

FIXTURES = Path(__file__).parents[4] / "fixtures"
BATCHES = FIXTURES / "diagnose_batches"


def test_table_of_words_is_what_the_solved_logs_give():
    assert TABLE.read_text(encoding="utf-8") == render_wording(learn(all_solved(project_folders()))), "write it anew: make generated"


def test_all_sets_of_logs_with_labels_are_learnt_from():
    assert {path.parent for path in FIXTURES.glob("diagnose*/labels.yml")} | set(BATCHES.iterdir()) <= set(project_folders())
    assert all(any(True for _ in solved_by_labels(path.parent)) for path in FIXTURES.glob("diagnose*/labels.yml"))


def test_table_reads_back_as_it_was_written():
    table = learn([("oom", frozenset({"killed", "memory", "cgroup"})), ("oom", frozenset({"memory", "killed"})), ("disk_full", frozenset({"space", "left"}))])
    again = parse_wording(render_wording(table))
    assert again.causes == ("disk_full", "oom") and again.rows.keys() == {"killed", "memory"}  # a word that only one log has does not count
    assert again.rows == {word: list(row) for word, row in table.rows.items()} and len(again.rows["memory"]) % 2 == 1


def test_words_of_one_cause_weigh_for_it_and_against_the_other():
    first, second = (frozenset(f"{name}{letter}" for letter in "abcdefghijklmnopqrstuvwxyz") for name in ("word", "other"))
    table = learn([("oom", first), ("disk_full", second), ("oom", first), ("disk_full", second)])
    near = {one.cause: one for one in resembling(first, table)}
    assert near["oom"].nearer > 0.1 > -0.1 > near["disk_full"].nearer
    assert set(near["oom"].words) <= first and near["disk_full"].words == ()


def test_a_quarter_of_enough_words_says_a_quarter(monkeypatch):
    words = sorted(load_wording().rows)[: ENOUGH_WORDS // 4]
    few = resembling(words, load_wording())
    monkeypatch.setattr(word_model, "ENOUGH_WORDS", 0)
    full = resembling(words, load_wording())
    assert [one.nearer for one in few] == pytest.approx([one.nearer / 4 for one in full]) and few[0].nearer > 0


def test_words_are_small_letters_without_what_is_left_of_addresses():
    assert words_in(b"gpu7:9:9 [0] NCCL WARN Call to ibv_reg_mr failed at 0xfade deadbeef") == {"gpu", "nccl", "warn", "call", "ibv_reg_mr", "failed"}


def test_few_words_resemble_nothing():
    assert resembling({"nccl", "timeout", "watchdog"}, load_wording()) == []


def test_solved_log_that_is_left_out_pulls_no_more_towards_its_cause():
    log = frozenset(f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyz") | frozenset(f"other{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")
    rest = [("oom", frozenset({*list(log)[:20], "memory"})), ("disk_full", frozenset({*list(log)[20:], "space"})), ("oom", frozenset({"memory", "space"}))]
    whole, without = ({one.cause: one.nearer for one in resembling(log, learn(solved))} for solved in ([("disk_full", log), *rest], [*rest, *rest]))
    assert whole["disk_full"] > without["disk_full"]


def test_batch_that_is_left_out_is_not_in_the_words_and_another_folder_takes_nothing_out(tmp_path, monkeypatch):
    learnt = []
    monkeypatch.setattr(scoring, "learn", lambda solved: learnt.extend(solved) or load_wording())
    withheld(BATCHES / "8", [])
    assert len(learnt) > 1000 and not set(learnt) & set(solved_cases(BATCHES / "8"))
    assert set(solved_cases(BATCHES / "9")) <= set(learnt)
    del learnt[:]
    assert withheld(tmp_path, []).wording is load_wording() and learnt == []


@pytest.mark.parametrize("name", ["checkpoint-truncated", "extension-without-nvcc", "healthy-fsdp2-dcp-round"])
def test_words_do_not_say_of_a_program_that_it_failed_by_itself(name):
    causes = {cause["cause"]: cause["evidence"] for cause in diagnose([str(FIXTURES / "diagnose_real_frameworks" / f"{name}.txt")])["causes"]}
    assert {line["file"] for line in causes.get("rank_failed", ())} != {"resembles"}


def test_what_words_alone_make_likely_is_a_remark():
    without = withheld(BATCHES / "8", [])
    answers = [diagnose([str(log)], without=without) for log in sorted((BATCHES / "8").glob("*/log.txt"))]
    by_words = [cause for one in answers for cause in one["causes"] if {line["file"] for line in cause["evidence"]} == {"resembles"}]
    assert by_words and all("have words like these" in cause["evidence"][0]["says"] for cause in by_words)
    assert {cause["severity"] for cause in by_words} == {"info"}


@pytest.mark.parametrize("batch", ["4", "6"])
def test_logs_are_answered_also_without_what_was_learnt_from_them(batch):
    """An estimate for unseen logs; docs/diagnosis-scores.md has the numbers of all batches."""
    numbers = summary(score_folder(BATCHES / batch, diagnose, leave_one_out=True))
    assert numbers["answerable"]["top1_rate"] >= 0.70
    assert numbers["answerable"]["top3_rate"] >= 0.80
    assert numbers["at_error_level"]["wrong"] - numbers["at_error_level"]["of_these_plausible"] <= 1
