"""Rules over several facts: whose memory it was, whose segments fill /dev/shm, and where a rank was
while the others waited."""

from __future__ import annotations

import pytest
from job_diagnosis import diagnose

OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 264.00 MiB (GPU 0; 10.76 GiB total"
    " capacity; 6.02 GiB already allocated; 178.94 MiB free; {own} GiB reserved in total by"
    " PyTorch)"
)
FULL = (
    "Filesystem      Size  Used Avail Use% Mounted on\ntmpfs            16G   16G     0 100%"
    " /dev/shm\n"
)
REFUSED = (
    "w1:5:9 [1] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-8Y to 33030532"
    " bytes, error: No space left on device (28)\n"
)


def _causes(tmp_path, text):
    """The causes above a remark, most probable first."""
    log = tmp_path / "job.log"
    log.write_text(text, encoding="utf-8")
    return [
        cause["cause"] for cause in diagnose([str(log)])["causes"] if cause["severity"] != "info"
    ]


@pytest.mark.parametrize(("own", "launch", "first"), [
    ("6.24", "torchrun --nproc_per_node=8 train.py --resume last.pth", "rank_device_mapping"),
    ("9.80", "torchrun --nproc_per_node=8 train.py --resume last.pth", "oom"),
    ("9.80", "python train.py", "oom"),
])  # fmt: skip
def test_memory_that_neither_is_free_nor_belongs_to_the_process_is_held_by_other_ranks(
    tmp_path, own, launch, first
):
    assert _causes(tmp_path, f"$ {launch}\n{OOM.format(own=own)}\n")[0] == first


def test_one_process_whose_gpu_is_filled_by_others_is_told_of_them(tmp_path):
    assert "orphan_processes_hold_gpu" in _causes(
        tmp_path, f"$ python train.py\n{OOM.format(own='2.10')}\n"
    )


@pytest.mark.parametrize(("part", "first"), [("38.20", "rank_device_mapping"), ("1.63", "oom")])
def test_processes_that_hold_equal_parts_share_a_gpu_only_where_the_parts_are_large(
    tmp_path, part, first
):
    held = (
        f"Process 643 has {part} GiB memory in use. Including non-PyTorch memory, this process has"
        f" {part} GiB memory in use."
    )
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 92.00 GiB. GPU 0 has a"
        f" total capacity of 79.15 GiB of which 1.25 GiB is free. {held}\n"
    )
    assert _causes(tmp_path, line)[0] == first


def test_full_shared_memory_without_old_segments_is_too_small(tmp_path):
    assert _causes(tmp_path, REFUSED + FULL)[0] == "shm_too_small"


@pytest.mark.parametrize(
    ("other", "first"), [("26.12", "rank_device_mapping"), ("52.20", "orphan_processes_hold_gpu")]
)
def test_another_process_with_an_equal_part_of_the_gpu_is_a_rank_that_took_it_too(
    tmp_path, other, first
):
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB. GPU 0 has a total"
        f" capacity of 79.11 GiB of which 511.81 MiB is free. Process 12 has {other} GiB memory in"
        " use. Including non-PyTorch memory, this process has 26.09 GiB memory in use. Of the"
        " allocated memory"
    )
    assert _causes(tmp_path, text + " 25.44 GiB is allocated by PyTorch\n")[0] == first


def test_threads_of_one_name_in_different_collectives_tell_of_ranks_that_differ(tmp_path):
    """A thread that saves may have a group of its own, so that it is compared with the other ranks'
    thread that saves, and not with the main one."""
    rank = (
        'Process {pid}: python train.py\nThread {pid} (active): "MainThread"\n'
        "    barrier (torch/distributed/distributed_c10d.py:4811)\n"
        'Thread 9{pid} (active): "Saver_0"\n'
        "    {call} (torch/distributed/distributed_c10d.py:3104)\n"
    )
    one, other = rank.format(pid=30, call="gather_object"), "all_gather_object"
    assert _causes(tmp_path, one + rank.format(pid=31, call=other))[0] == "rank_desync_app"
    assert _causes(tmp_path, one + rank.format(pid=31, call="gather_object")) == []


KILLED = "[88211.3] Out of memory: Killed process {} total-vm:498123412kB, anon-rss:25131234kB\n"
INIT = "gpu10:700{0}:72 [{0}] NCCL INFO ncclCommInitRank comm 0x5{0} rank {0} nranks 2 cudaDev {0} busId {0}000 commId 0xabc - Init COMPLETE\n"
STEPS = "".join(f"[rank{rank}] step {step} loss 2.7\n" for step in range(9) for rank in (0, 1))
GOES_ON = INIT.format(0) + INIT.format(1) + STEPS


@pytest.mark.parametrize(
    ("killed", "job", "certainty"),
    [
        ("991 (jupyter-lab)", GOES_ON, "possible"),
        ("7001 (jupyter-lab)", GOES_ON, "sure"),  # a rank may have any name
        ("991 (python3.11)", GOES_ON, "sure"),  # a container has numbers of its own
        ("991 (pt_data_worker)", GOES_ON, "sure"),
        ("991 (jupyter-lab)", STEPS, "sure"),  # nothing tells which processes are the job's
        ("991 (jupyter-lab)", GOES_ON + "srun: error: gpu10: task 1: Out Of Memory\n", "sure"),
    ],
)
def test_killed_process_that_is_no_rank_of_a_job_that_goes_on(tmp_path, killed, job, certainty):
    (tmp_path / "dmesg.txt").write_text(KILLED.format(killed))
    (tmp_path / "job.log").write_text(job)
    found = diagnose([str(tmp_path)])["causes"][0]
    assert (found["cause"], found["certainty"]) == ("oom", certainty)
