"""The commands to run next: one for each thing that is asked for, each with its outcomes; few
beside causes, which have checks of their own."""

from __future__ import annotations

import re

import pytest

from unhang.core import catalogue
from unhang.jobs.diagnose.diagnosing import diagnose, diagnose_text
from unhang.jobs.diagnose.matching.signatures import load_causes
from unhang.jobs.diagnose.next_steps import (
    ANSWERED_BY,
    MOST_BESIDE_CAUSES,
    MOST_COMMANDS,
    what_to_run_next,
)
from unhang.jobs.diagnose.rendering import render_table, steps_of
from unhang.jobs.diagnose.ticket import render_markdown

HANGS = frozenset({"hangs", "machine", "nvidia", "torch", "silent"})
REFUSED = (
    "The job over two nodes hangs.\n[E socket.cpp:793] [c10d] The client socket has timed out after"
    " 60s while trying to connect to (n1, 2222).\n"
)


LATE = (
    "[rank{rank}]:[E908 14:02:10.1 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size},"
    " NumelOut={size}, Timeout(ms)=1800000) ran for 1800031 milliseconds before timing out.\n"
)


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
    assert (
        shown[0] == first
        and "stacks" not in asks_of(shown[1:])
        and "stacks" in asks_of(what_to_run_next(HANGS))
    )


def test_fewer_are_shown_beside_causes():
    assert (
        what_to_run_next(HANGS, beside_causes=True) == what_to_run_next(HANGS)[:MOST_BESIDE_CAUSES]
    )


def test_command_whose_output_was_read_is_left_out():
    at_the_start = HANGS - {"silent"} | {"start"}
    experiment = next(one for one in what_to_run_next(at_the_start) if "NCCL_P2P_DISABLE" in one)
    assert experiment not in what_to_run_next(at_the_start, given=(experiment[:40],))


@pytest.mark.parametrize(
    ("asks", "answer"),
    [(asks, answer) for asks, answers in ANSWERED_BY.items() for answer in sorted(answers)],
)
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
    assert (
        shown.index(f"check: {cause['collect'][0]}") < shown.index("if so: ")
        and " do: " not in shown
    )
    assert f"check: {cause['collect'][0]}" in " ".join(render_markdown(found).split())


def test_cause_that_is_sure_is_shown_with_what_to_do(tmp_path):
    shown = render_table(
        diagnose_text("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 50\n")
    )
    assert " do: " in shown and "check: " not in shown and "if so: " not in shown


RAISED = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\n'
LAUNCHER = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\ntrain.py FAILED\nRoot"
    " Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid:"
    " 4100)\n  error_file: <N/A>\n"
)


def first_words(text):
    return [one.partition("\n")[0] for one in diagnose_text(text)["collect_next"]]


@pytest.mark.parametrize(
    "text", [RAISED, LAUNCHER], ids=["a traceback that is cut", "only the launcher's report"]
)
def test_rest_of_the_output_is_asked_for_where_it_is_missing(text):
    asked = ("the same output to its end", "the own log of the rank")
    assert first_words(text)[0].startswith(asked)


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


def test_container_that_asks_for_an_unknown_gpu_is_no_missing_runtime():
    found = diagnose_text("nvidia-container-cli: device error: 4: unknown device\n")
    assert "NVIDIA_VISIBLE_DEVICES" in found["collect_next"][0] and not [
        one for one in found["causes"] if one["severity"] != "info"
    ]
    assert len(steps_of(found)) <= MOST_COMMANDS
    other = diagnose_text("nvidia-container-cli: initialization error: nvml error\n")
    assert (
        other["causes"][0]["cause"] == "container_gpu_access"
        and other["causes"][0]["severity"] != "info"
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


def test_no_fork_ends_in_a_guess():
    """An outcome in which all is as it should be leads to the next question, and not to whatever is
    left."""
    guess = re.compile(
        r"(?:all right|both right|all alone and Running|both|all alike): the"
        r" (?:network|ranks|program|interface|ranks' numbers)(?:;|$)"
    )
    assert [
        row["id"]
        for row in catalogue.table("next_steps").values()
        if any(guess.search(one) for one in row["tells"])
    ] == []


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
