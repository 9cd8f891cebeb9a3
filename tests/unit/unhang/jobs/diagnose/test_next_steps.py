"""The commands to run next: one for each thing that is asked for, each with its outcomes; few beside causes, which have checks of their own."""

from __future__ import annotations

import pytest

from unhang.core import catalogue
from unhang.jobs.diagnose.diagnosing import diagnose, diagnose_text
from unhang.jobs.diagnose.matching.signatures import load_causes
from unhang.jobs.diagnose.next_steps import ANSWERED_BY, MOST_BESIDE_CAUSES, MOST_COMMANDS, what_to_run_next
from unhang.jobs.diagnose.rendering import render_markdown, render_table

HANGS = frozenset({"hangs", "machine", "nvidia", "torch", "silent"})
REFUSED = "The job over two nodes hangs.\n[E socket.cpp:793] [c10d] The client socket has timed out after 60s while trying to connect to (n1, 2222).\n"


def asks_of(shown):
    """What is asked for, by the rows' own word."""
    rows = {row["run"]: row["asks"] for row in catalogue.table("next_steps").values()}
    return [rows[one.partition("\n")[0]] for one in shown]


def test_each_thing_is_asked_for_once_and_every_command_has_its_outcomes():
    shown = what_to_run_next(HANGS)
    assert len(shown) == MOST_COMMANDS and len(set(asks_of(shown))) == MOST_COMMANDS
    assert all(len(one.split("\n")) >= 3 for one in shown)


def test_what_the_conclusion_asks_for_comes_first_and_no_other_stack_is_asked_for():
    first = "py-spy dump --pid PID of rank 3"
    shown = what_to_run_next(HANGS, first=(first,))
    assert shown[0] == first and "stacks" not in asks_of(shown[1:]) and "stacks" in asks_of(what_to_run_next(HANGS))


def test_fewer_are_shown_beside_causes():
    assert what_to_run_next(HANGS, beside_causes=True) == what_to_run_next(HANGS)[:MOST_BESIDE_CAUSES]


def test_command_whose_output_was_read_is_left_out():
    at_the_start = HANGS - {"silent"} | {"start"}
    experiment = next(one for one in what_to_run_next(at_the_start) if "NCCL_P2P_DISABLE" in one)
    assert experiment not in what_to_run_next(at_the_start, given=(experiment[:40],))


@pytest.mark.parametrize(("asks", "answer"), [(asks, answer) for asks, answers in ANSWERED_BY.items() for answer in sorted(answers)])
def test_what_has_been_answered_is_not_asked_for(asks, answer):
    for told in (HANGS, HANGS - {"torch"}):
        assert asks not in asks_of(what_to_run_next(told | {answer}))


def test_nothing_is_asked_of_a_log_of_a_job_that_came_to_its_end(tmp_path):
    (tmp_path / "job.log").write_text("step 3 | loss 2.8\n{'train_runtime': 812.2}\n")
    assert diagnose([str(tmp_path / "job.log")])["collect_next"] == []


def test_each_cause_names_the_command_that_decides_about_it_and_what_it_shows():
    for name, row in load_causes().items():
        assert len(row["collect"][0].split(": ")) >= 2, name


def test_cause_that_is_not_sure_is_shown_with_its_check_before_its_remedy():
    found = diagnose_text(REFUSED)
    cause = next(one for one in found["causes"] if one["severity"] != "info")
    assert cause["certainty"] != "sure"
    shown = " ".join(render_table(found).split())
    assert shown.index(f"check: {cause['collect'][0]}") < shown.index("if so: ") and " do: " not in shown
    assert f"- check: {cause['collect'][0]}" in render_markdown(found)


def test_cause_that_is_sure_is_shown_with_what_to_do(tmp_path):
    shown = render_table(diagnose_text("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 50\n"))
    assert " do: " in shown and "check: " not in shown and "if so: " not in shown
