"""What an earlier run left (memory, stores), devices that are not there, and networks that do not
fit: each with a log in which the rule must be silent."""

from __future__ import annotations

import pytest
from job_diagnosis import diagnose

LAUNCHED = (
    "[kim@{host} run]$ torchrun --nproc_per_node=8 --nnodes={nodes} --node_rank={rank}"
    " --rdzv_endpoint=gpu-a:29500 train.py\n"
)
EXCHANGE = (
    "[rank{rank}]:[E503 11:51:00.14 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum=77, OpType={op}, NumelIn={numel},"
    " NumelOut={numel}, Timeout(ms)=600000) ran for 600023 milliseconds before timing out.\n"
)
REFUSED = (
    "RuntimeError: CUDA out of memory. Tried to allocate {wanted} (GPU 2; 10.76 GiB total capacity;"
    " 1.02 GiB already allocated; 26.88 MiB free; "
)
RESERVED = "1.14 GiB reserved in total by PyTorch)\n"
UP = "$ ip -br -4 a\nens2f0           UP             198.51.100.3/24\n"


def _causes(tmp_path, text):
    log = tmp_path / "job.log"
    log.write_text(text, encoding="utf-8")
    return [
        cause["cause"] for cause in diagnose([str(log)])["causes"] if cause["severity"] != "info"
    ]


def test_number_that_was_corrected_is_no_wrong_launch(tmp_path):
    text = "".join(
        LAUNCHED.format(host=host, nodes=2, rank=rank)
        for host, rank in (("gpu-a", 0), ("gpu-b", 0), ("gpu-b", 1))
    )
    assert "launch_mismatch" not in _causes(tmp_path, text)


@pytest.mark.parametrize(
    ("op", "sizes", "differ"),
    [
        ("ALLTOALL", (0, 884736), True),
        ("ALLTOALL", (4096, 884736), False),
        ("ALLREDUCE", (0, 884736), True),
        ("ALLTOALL", (0, 0), False),
    ],
)
def test_rank_that_takes_part_with_nothing_disagrees_with_the_others(tmp_path, op, sizes, differ):
    text = "".join(
        EXCHANGE.format(rank=rank, op=op, numel=numel) for rank, numel in enumerate(sizes)
    )
    assert ("rank_desync_app" in _causes(tmp_path, text)[:1]) is differ


@pytest.mark.parametrize(
    ("wanted", "first"), [("88.00 MiB", "orphan_processes_hold_gpu"), ("92.00 GiB", "oom")]
)
def test_memory_of_others_is_the_cause_unless_the_request_is_larger_than_that(
    tmp_path, wanted, first
):
    assert _causes(tmp_path, REFUSED.format(wanted=wanted) + RESERVED)[0] == first


STORE = (
    "Timed out initializing process group in store based barrier on rank: 0, for key:"
    " store_based_barrier_key:1 (world_size=2, worker_count={}, timeout=0:02:00)\n"
)


@pytest.mark.parametrize(("counted", "first"), [(4, "stale_store"), (1, "launch_mismatch")])
def test_more_workers_than_the_world_are_those_of_an_earlier_run(tmp_path, counted, first):
    assert _causes(tmp_path, STORE.format(counted))[0] == first
