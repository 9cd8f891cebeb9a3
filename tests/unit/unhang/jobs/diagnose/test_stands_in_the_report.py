"""What stands in a report and was once not used: stacks, launch lines, runs that were killed
before, and how an actor died."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

LOCK = (
    "rank {}:\n    acquire (filelock/_api.py:344)\n    build (lib/data.py:80)\n    main"
    " (main.py:8)\n"
)
SUM = (
    "rank {}:\n    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    step"
    " (train.py:88)\n"
)


def loud(found):
    return [one["cause"] for one in found["causes"] if one["severity"] != "info"]


def test_stacks_that_all_stand_in_one_call_are_the_finding():
    found = diagnose_text("it hangs at its start\n" + LOCK.format(0) + LOCK.format(3))
    assert (
        found["outcome"]["why"].startswith(
            "the stacks of ranks 0, 3 are in acquire (filelock/_api.py)"
        )
        and loud(found) == []
    )
    assert "on what acquire (filelock/_api.py) waits" in found["collect_next"][0] and not any(
        "NCCL_P2P" in one for one in found["collect_next"]
    )


@pytest.mark.parametrize(
    "text", [LOCK.format(0), SUM.format(0) + SUM.format(1), LOCK.format(0) + SUM.format(1)]
)
def test_one_stack_and_stacks_in_a_collective_are_no_such_place(text):
    assert "are in acquire" not in diagnose_text("it hangs\n" + text)["outcome"]["why"]


def test_actor_that_died_is_looked_for_in_the_kernels_log():
    assert (
        "killed process"
        in diagnose_text(
            "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this"
            " task.\n"
        )["next"]["command"]
    )


SLURM = (
    "#SBATCH --ntasks-per-node={}\nsrun {} train.py\nn1:31:230 [0] NCCL WARN Duplicate GPU detected"
    " : rank 3 and rank 1 both on CUDA device 4b000\n"
)


@pytest.mark.parametrize(("tasks", "start"), [(1, "torchrun --nproc_per_node=8"), (8, "python")])
def test_two_ranks_on_a_gpu_are_that_cause_where_the_launcher_starts_them_once(tasks, start):
    assert [
        one["cause"]
        for one in diagnose_text(SLURM.format(tasks, start))["causes"]
        if one["severity"] != "info"
    ] == ["rank_device_mapping"]
