"""The kind of symptom decides what to run next: the load of a checkpoint, a server that is slow, a
launch that failed, ranks that do not meet."""

from __future__ import annotations

from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.rendering import render_table

NOT_LAUNCHED = "srun: error: task 0 launch failed: Unspecified error\n"
ENDED = (
    "E0714 09:31:02.1 3121 torch/distributed/elastic/multiprocessing/api.py:988] failed (exitcode:"
    " 1) local_rank: 0 (pid: 3390) of binary: python\n"
)
NO_MODULE = (
    "/usr/bin/python: Error while finding module specification for 'tool.run' (ModuleNotFoundError:"
    " No module named 'tool')\n"
)
WORKING = (
    "Epoch 0, global step 2208: 'val_wer' reached 0.71220 (best 0.71220), saving model to"
    " '/w/a.ckpt' as top 5\n"
)
LATE = (
    "[rank{rank}]:[E302 11:00:00.12 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum=11209, OpType=ALLREDUCE, NumelIn=1, NumelOut=1,"
    " Timeout(ms)=1800000) ran for 1800041 milliseconds before timing out.\n"
)


def first_words(text):
    return [one.partition("\n")[0] for one in diagnose_text(text)["collect_next"]]


def asked(text, *words):
    shown = first_words(text)
    return [any(word in one for one in shown) for word in words]


def test_checkpoint_that_was_loaded_before_the_steps_is_not_asked_for():
    steps = "".join(f"step {n} loss 3.{n}\n" for n in range(1, 9))
    loaded = "[rank0]: INFO - Loading the checkpoint from /scratch/step-12000.\n"
    assert asked(f"{loaded}{steps}then it hangs\n", "begins and ends the load") == [False]


def test_launch_that_failed_is_a_failure_and_its_ranks_are_not_asked_for():
    found = diagnose_text(f"It does not even start on any node.\n{NOT_LAUNCHED}")
    assert (
        found["outcome"]["word"] == "failure"
        and "could not start the tasks" in found["outcome"]["why"]
    )
    assert found["next"]["command"] == "srun --mpi=list"
    assert asked(NOT_LAUNCHED, "py-spy", "NCCL_DEBUG") == [False, False]
    assert asked("srun: error: node1: task 3: Exited with exit code 1\n", "srun --mpi=list") == [
        False
    ]


def test_module_that_is_missing_beside_a_launchers_report_is_what_the_rank_printed():
    found = diagnose_text(ENDED + NO_MODULE)
    assert (
        "did not find a module" in found["outcome"]["why"]
        and "not in the log" not in found["outcome"]["why"]
    )
    assert found["next"]["command"].startswith("which -a python")
    assert "not in the log" in diagnose_text(ENDED)["outcome"]["why"] and asked(
        ENDED, "which -a python"
    ) == [False]


def test_ways_to_lengthen_a_limit_are_shown_only_where_the_log_decides_for_it():
    found = {
        **diagnose_text(WORKING + "".join(LATE.format(rank=rank) for rank in (1, 2))),
        "decided": True,
    }
    assert found["causes"][0]["remedy"]["how"]
    assert "ddp_timeout" in render_table(found)
    assert "ddp_timeout" not in render_table({**found, "decided": False})
