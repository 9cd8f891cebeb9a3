"""What stands in a report and was once not used: stacks, launch lines, runs that were killed before, and how an actor died."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

LOCK = "rank {}:\n    acquire (filelock/_api.py:344)\n    build (lib/data.py:80)\n    main (main.py:8)\n"
SUM = "rank {}:\n    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    step (train.py:88)\n"
SCHEDULER = "TP{} scheduler (node {}), {}:\n    {} (sglang/srt/{}.py:402)\n"
SLURM = (
    "Two nodes.\n#SBATCH --ntasks-per-node={}\nsrun {} train.py\nn1:31:230 [0] NCCL WARN Duplicate GPU detected : rank 3 and rank 1 both on CUDA device 4b000\n"
)
GROUP = "{}\ndist.init_process_group(backend='nccl', world_size=4, rank=args.{})\nit hangs there\n"


def loud(found):
    return [one["cause"] for one in found["causes"] if one["severity"] != "info"]


def test_stacks_that_all_stand_in_one_call_are_the_finding():
    found = diagnose_text("it hangs at its start\n" + LOCK.format(0) + LOCK.format(3))
    assert found["outcome"]["why"].startswith("the stacks of ranks 0, 3 stand in acquire (filelock/_api.py)") and loud(found) == []
    assert "on what acquire (filelock/_api.py) waits" in found["collect_next"][0] and not any("NCCL_P2P" in one for one in found["collect_next"])


@pytest.mark.parametrize("text", [LOCK.format(0), SUM.format(0) + SUM.format(1), LOCK.format(0) + SUM.format(1)])
def test_one_stack_and_stacks_in_a_collective_are_no_such_place(text):
    assert "stand in acquire" not in diagnose_text("it hangs\n" + text)["outcome"]["why"]


def test_stacks_of_an_engine_are_those_of_its_ranks():
    busy, idle = SCHEDULER.format(0, 0, "active", "_get_logits", "layers"), SCHEDULER.format(1, 1, "idle", "recv_requests", "managers/scheduler")
    found = diagnose_text("it stops\n" + busy + idle)
    assert loud(found) == ["rank_desync_app"] and not any(one.startswith("py-spy") for one in found["collect_next"])


@pytest.mark.parametrize(("tasks", "start", "cause"), [
    (8, "torchrun --nproc_per_node=8", "launch_mismatch"),
    (1, "torchrun --nproc_per_node=8", "rank_device_mapping"),
    (8, "python", "rank_device_mapping"),
])  # fmt: skip
def test_launcher_in_each_task_explains_two_ranks_on_a_gpu(tasks, start, cause):
    found = diagnose_text(SLURM.format(tasks, start))
    assert loud(found) == [cause]
    assert (cause == "launch_mismatch") == ("let Slurm start the launcher once" in found["causes"][0]["remedy"].get("person", ""))


@pytest.mark.parametrize(
    ("nodes", "rank", "named"),
    [("It runs on two nodes.", "local_rank", True), ("One workstation with 4 GPUs.", "local_rank", False), ("It runs on two nodes.", "rank", False)],
)
def test_number_on_the_node_is_no_rank_of_a_job_over_several(nodes, rank, named):
    found = diagnose_text(GROUP.format(nodes, rank))
    assert ("launch_mismatch" in loud(found)) is named and not (named and "RANK" not in found["causes"][0]["remedy"]["person"])


@pytest.mark.parametrize(("told", "asked"), [
    ("I start and kill a bunch of short runs", True), ("After a reboot of the machine it works again.", True), ("after a reboot it still hangs", False),
])  # fmt: skip
def test_killed_runs_are_asked_for_what_they_left(told, asked):
    assert any("/dev/shm" in one for one in diagnose_text(f"training is stuck in its init on 8 GPUs\n{told}\n")["collect_next"]) is asked


def test_actor_that_died_is_looked_for_in_the_kernels_log():
    assert "killed process" in diagnose_text("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n")["collect_next"][0]
