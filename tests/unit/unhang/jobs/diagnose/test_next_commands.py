"""The commands to run next: few commands that together distinguish as many of the remaining causes as possible, and none if nothing remains to be found out."""

from __future__ import annotations

from unhang.jobs.diagnose.diagnosing import diagnose
from unhang.jobs.diagnose.next_commands import MOST_COMMANDS, what_to_run_next
from unhang.jobs.diagnose.ranking import Cause

ROWS = {
    "a": {"collect": ["tells a", "tells a and b", "more of a"]},
    "b": {"collect": ["tells a and b", "tells b"]},
    "c": {"collect": ["tells c", "more of c"]},
}


def cause(name, score):
    return Cause(name, score * 10, score, "info", (), ())


def test_command_that_tells_several_causes_apart_is_the_one_of_their_lists():
    assert what_to_run_next([cause("a", 0.4), cause("b", 0.35), cause("c", 0.1)], ROWS, ()) == ["tells a and b"]


def test_first_command_of_the_likeliest_cause_leads_where_no_other_is_near():
    assert what_to_run_next([cause("a", 0.9), cause("c", 0.05)], ROWS, ())[0] == "tells a"


def test_what_the_answer_itself_asks_for_comes_first_and_nothing_is_asked_twice():
    chosen = what_to_run_next([cause("a", 0.5)], ROWS, {"hangs", "machine"}, first=("py-spy dump --pid PID of rank 3",))
    assert chosen[0] == "py-spy dump --pid PID of rank 3" and "tells a" in chosen
    assert len(chosen) == MOST_COMMANDS and sum("py-spy" in one for one in chosen) == 1


def test_nothing_is_asked_of_a_log_of_a_job_that_came_to_its_end(tmp_path):
    (tmp_path / "job.log").write_text("step 3 | loss 2.8\n{'train_runtime': 812.2}\n")
    assert diagnose([str(tmp_path / "job.log")])["collect_next"] == []
