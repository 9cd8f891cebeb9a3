"""What to run next: one command to paste, and further steps, each with its outcomes; those of a cause
stand in the catalogue."""

from __future__ import annotations

import json
import subprocess

import pytest
from job_diagnosis import diagnose

from unhang.core.catalogue.own_tables import table
from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.matching.signatures import load_causes
from unhang.jobs.diagnose.next_steps import IN_WORDS, MOST_COMMANDS
from unhang.jobs.diagnose.rendering import render_table

REFUSED = (
    "The job over two nodes hangs.\n[E socket.cpp:793] [c10d] The client socket has timed out after"
    " 60s while trying to connect to (n1, 2222).\n"
)
LATE = (
    "[rank{rank}]:[E908 14:02:10.1 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size},"
    " NumelOut={size}, Timeout(ms)=1800000) ran for 1800031 milliseconds before timing out.\n"
)
KILLED = "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks\n"


def test_a_job_that_may_still_run_is_looked_at_first_and_the_kernel_s_log_behind():
    found = diagnose_text("step 1 | loss 2.0\nstep 2 | loss 1.9\n")
    assert found["outcome"]["word"] == "no_end"
    assert found["next"]["command"] == "unhang inspect"
    assert [one.partition(" -T")[0] for one in found["collect_next"]] == ["dmesg"]
    assert all(one.count("\n") for one in found["collect_next"])


def test_an_undecided_log_gets_no_question_about_settings_that_it_does_not_show():
    """py-spy, MASTER_ADDR, NCCL_P2P_DISABLE: guesses, where a look at the job says what holds it."""
    for text in ("step 1 | loss 2.0\n", LATE.format(rank=0, seq=1, op="ALLREDUCE", size=1)):
        found = diagnose_text(text)
        steps = json.dumps([found["next"], found["collect_next"]])
        assert not any(word in steps for word in ("MASTER_ADDR", "NCCL_P2P", "pip list")), steps


def test_the_further_steps_of_a_cause_are_its_other_commands():
    found = diagnose_text(REFUSED)
    first = next(one for one in found["causes"] if one["severity"] != "info")
    commands = {one["tells"] for one in load_causes()[first["cause"]]["commands"]}
    assert found["next"]["tells"] in commands
    assert {one.partition("\n")[2] for one in found["collect_next"]} <= commands


def test_what_is_shown_on_the_screen_is_read_by_a_shell_and_the_rest_says_that_it_is_words():
    tables = (table("steps_of_lines"), table("steps_of_failures"))
    rows = [(row["run"], row["tells"]) for one in tables for row in one.values()]
    commands = [run for run, _ in rows if not run.startswith(IN_WORDS)]
    assert len(commands) >= 8 and all(tells for _, tells in rows)
    for run in commands:
        done = subprocess.run(
            ["bash", "-n", "-c", run.replace("{", "").replace("}", "")],
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b""), run


def test_each_command_is_shown_once():
    found = diagnose_text(KILLED)
    steps = [found["next"]["command"], *(one.partition("\n")[0] for one in found["collect_next"])]
    assert len(steps) == len(set(steps)) <= MOST_COMMANDS + 1


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
    assert (
        shown.index(f"check: {cause['collect'][0]}") < shown.index("if so: ")
        and " do: " not in shown
    )


def test_cause_that_is_sure_is_shown_with_what_to_do(tmp_path):
    shown = render_table(
        diagnose_text("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 50\n")
    )
    assert " do: " in shown and "check: " not in shown and "if so: " not in shown


def first_words(text):
    return [one.partition("\n")[0] for one in diagnose_text(text)["collect_next"]]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("RuntimeError: Distributed package doesn't have NCCL built in\n", "is_nccl_available"),
        (
            "ValueError: Cannot load file containing pickled data when allow_pickle=False\n",
            "ls -l of that file",
        ),
    ],
)
def test_what_is_special_has_steps_of_its_own(text, wanted):
    assert wanted in first_words(text)[0] and diagnose_text(text)["outcome"]["word"] == "failure"


def test_function_that_an_older_torch_does_not_have_is_no_wrapped_model():
    line = "AttributeError: 'DistributedDataParallel' object has no attribute '{}'\n"
    assert "torch.__version__" in first_words(line.format("_set_static_graph"))[0]
    assert not any(
        "torch.__version__" in first_words(line.format(name))[0] for name in ("config", "no_sync")
    )


def test_check_whose_output_was_read_is_left_out():
    made = "n1:1:1 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n"
    waits = "n1:1:1 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/IPC\n" + LATE.format(
        rank=0, seq=1, op="ALLREDUCE", size=4096
    )
    for text, is_asked in ((waits, True), (made + waits, False)):
        causes = [one for one in diagnose_text(text)["causes"] if one["collect"]]
        assert (
            any("NCCL_P2P_DISABLE" in step for one in causes for step in one["collect"]) == is_asked
        )


SPEED = "Epoch[{epoch}] Batch [20]   Speed: {speed} samples/sec\n"


def test_speed_that_falls_is_no_hang_and_is_asked_for_clocks_and_temperature():
    falls, steady = (
        "".join(SPEED.format(epoch=n, speed=speed) for n, speed in enumerate(speeds))
        for speeds in ((2015.4, 1710.1, 921.6, 640.7), (2015.4, 1990.1, 2021.6, 2003.7))
    )
    found = diagnose_text(falls)
    assert "slow" in found["outcome"]["why"] and any(
        "clocks.sm,temperature.gpu" in one for one in found["collect_next"]
    )
    assert not any("py-spy" in one for one in found["collect_next"])
    assert not any(
        "clocks.sm,temperature.gpu" in one for one in diagnose_text(steady)["collect_next"]
    )
