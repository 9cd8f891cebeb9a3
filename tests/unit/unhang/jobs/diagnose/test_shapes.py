"""What each process prints about its share of the job, its settings and its progress: together
these lines show causes that no line shows alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_diagnosis import diagnose

LOGS = Path(__file__).parents[4] / "fixtures" / "diagnose_real_jobs"
WATCHDOG = (
    "[rank{0}]:[E105 10:31:{1}.1 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum={2}, OpType=ALLREDUCE, NumelIn=9000, NumelOut=9000,"
    " Timeout(ms)=8000) ran for 8019 milliseconds before timing out."
)
THREE = "\n".join(WATCHDOG.format(rank, 20, 25) for rank in (0, 1, 3))


def causes(tmp_path, text):
    """The causes, first first, as (id, severity)."""
    log = tmp_path / "job.log"
    log.write_text(f"{text}\n")
    return [(cause["cause"], cause["severity"]) for cause in diagnose([str(log)])["causes"]]


def alone(count, tasks=4):
    """Tasks of a step that each tell of a world of one."""
    return "\n".join(
        f"{task}: SLURM_NTASKS={tasks} SLURM_PROCID={task}\n{task}: step 5 loss 2.5\n{task}: done,"
        " world size 1"
        for task in range(count)
    )


def test_collective_that_began_after_the_first_had_given_up_is_no_divergence(tmp_path):
    assert causes(tmp_path, f"{THREE}\n{WATCHDOG.format(2, 21, 28)}")[0][0] == "rank_desync_app"
    assert "rank_desync_app" not in [
        cause for cause, *_ in causes(tmp_path, f"{THREE}\n{WATCHDOG.format(2, 55, 28)}")
    ]


def test_value_that_one_rank_alone_prints_is_a_divergence_once_the_ranks_do_not_meet(tmp_path):
    said = "\n".join(f"rank {rank}: heads {8 if rank == 3 else 4} of 32" for rank in range(4))
    waits = (
        "[rank3]: torch.distributed.DistBackendError: [3] is setting up NCCL communicator and"
        " retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0')"
        " got error: wait timeout after 10000ms, keys: /default_pg/0//cuda//0"
    )
    assert causes(tmp_path, f"{said}\n{waits}")[0][0] == "rank_desync_app"
    assert causes(tmp_path, said) == []
    assert (
        causes(tmp_path, f"{said.replace('heads 8', 'heads 4')}\n{waits}")[0][0]
        == "slow_rank_or_io"
    )


@pytest.mark.parametrize("name", ["preempted-one-rank-by-sigterm", "interrupted-at-the-keyboard"])
def test_words_of_a_job_that_a_signal_ended_say_nothing(tmp_path, name):
    assert causes(tmp_path, (LOGS / f"{name}.txt").read_text(encoding="utf-8")) == []
