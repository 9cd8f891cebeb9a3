"""The commands to run next: few commands that together distinguish as many of the remaining causes as possible, and none if nothing remains to be found out."""

from __future__ import annotations

from unhang.jobs.diagnose.diagnosing import diagnose
from unhang.jobs.diagnose.matching.signatures import load_causes
from unhang.jobs.diagnose.next_commands import MOST_COMMANDS, what_to_run_next
from unhang.jobs.diagnose.ranking import Cause

ROWS = {
    "a": {"collect": ["tells a", "tells a and b", "more of a"]},
    "b": {"collect": ["tells a and b", "tells b"]},
    "c": {"collect": ["tells c", "more of c"]},
}


def cause(name, score):
    return Cause(name, score * 10, score, "info", (), ())


def test_command_that_tells_several_causes_comes_before_one_that_tells_the_same_again():
    chosen = what_to_run_next([cause("a", 0.4), cause("b", 0.35), cause("c", 0.1)], ROWS, most=3)
    assert chosen[0] == "tells a and b" and set(chosen) == {"tells a and b", "tells a", "tells c"}


def test_first_command_of_the_likeliest_cause_leads_where_no_other_is_near():
    assert what_to_run_next([cause("a", 0.9), cause("c", 0.05)], ROWS)[0] == "tells a"


def test_what_the_answer_itself_asks_for_is_in_the_list_and_no_command_twice():
    chosen = what_to_run_next([cause("a", 0.5)], ROWS, ask=("the log of every rank", "tells a"), usual=("c",))
    assert {"the log of every rank", "tells a", "tells c"} <= set(chosen) and len(chosen) == len(set(chosen)) <= MOST_COMMANDS


def test_nothing_is_asked_of_a_log_of_a_job_that_came_to_its_end(tmp_path):
    (tmp_path / "job.log").write_text("step 3 | loss 2.8\n{'train_runtime': 812.2}\n")
    assert diagnose([str(tmp_path / "job.log")])["collect_next"] == []


def test_failure_that_nothing_is_known_of_asks_for_what_tells_the_usual_causes(tmp_path):
    (tmp_path / "job.log").write_text("step 1 | loss 3.0\nstep 2 | loss 2.9\n")
    asked = diagnose([str(tmp_path / "job.log")])["collect_next"]
    rows = load_causes()
    shown = {name for name, row in rows.items() if set(asked) & set(row["collect"])}
    assert len(asked) == MOST_COMMANDS and {"rank_desync_app", "slow_rank_or_io", "xid_hardware", "nccl_bug", "oom"} <= shown
