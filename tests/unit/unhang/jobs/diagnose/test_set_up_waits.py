"""Ranks that came to the set-up of the job's communicator, and who did not; calls that differ."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text

END = (
    "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-20T12:00:31 DUE TO TIME LIMIT ***\n"
)


def start(rank, size=16, word="START"):
    return (
        f"{rank}: n{rank // 8}:{9000 + rank}:{9500 + rank} [{rank % 8}] NCCL INFO ncclCommInitRank"
        f" comm 0x5630aa0 rank {rank} nranks {size} cudaDev {rank % 8} nvmlDev {rank % 8} busId"
        f" {rank % 8 + 1}b000 commId 0x39be - Init {word}\n"
    )


def roots(text):
    waited = diagnose_text(text)["waited_for"]
    return waited and waited["roots"]["ranks"]


def test_two_ranks_that_did_not_start_are_waited_for():
    assert roots("".join(start(rank) for rank in range(16) if rank not in (4, 9)) + END) == "4,9"


@pytest.mark.parametrize(
    "text",
    [
        "".join(start(rank) for rank in range(16)) + END,
        "".join(start(rank) for rank in range(8)) + END,  # the log of one of two nodes
        "".join(start(r) + start(r, word="COMPLETE") for r in range(15)) + END,
        "".join(start(rank) for rank in range(15)) + "step 10 loss 2.5\nstep 20 loss 2.4\n",
    ],
    ids=["all came", "one node", "completed", "trains"],
)
def test_log_in_which_the_job_went_on_or_ranks_are_not_logged_accuses_nobody(text):
    assert roots(text) is None


def late(rank, group, number, op, seq, numel):
    return (
        f"[rank{rank}]:[E619 14:12:11.8 ProcessGroupNCCL.cpp:607] [Rank {number}] Watchdog caught"
        f" collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel},"
        f" NumelOut={numel}, Timeout(ms)=600000) ran for 600036 milliseconds before timing out.\n"
        f"[rank{rank}]:[E619 14:12:11.9 ProcessGroupNCCL.cpp:1664] [PG {group} Rank {number}]"
        f" Exception (either an error or timeout) detected by watchdog at work: {seq}, last"
        f" enqueued NCCL work: {seq}, last completed NCCL work: {seq - 1}.\n"
    )


def with_pipeline(odd):
    """Ranks 4-7 are a tensor group, and 0-3 wait for them as the stage before."""
    text = "".join(
        late(rank, 2, rank - 4, odd if rank == 6 else "ALLREDUCE", 7000, 4096)
        for rank in range(4, 8)
    )
    return text + "".join(late(rank, 20 + rank, 0, "RECV", 310, 512) for rank in range(4))


def test_rank_that_called_another_operation_is_the_first_verdict():
    answer = diagnose_text(with_pipeline("_ALLGATHER_BASE"))
    assert not answer["waited_for"]["roots"]["count"]
    calls = answer["waited_for"]["waits"][0]["calls"]
    assert {call["what"].split()[0]: call["ranks"] for call in calls} == {
        "ALLREDUCE": "4-5,7", "_ALLGATHER_BASE": "6"
    }  # fmt: skip
    assert answer["causes"][0]["where"] == ["rank 6"]


def test_ranks_that_time_out_in_different_groups_called_nothing_unlike():
    text = "".join(late(rank, 2, rank - 4, "ALLREDUCE", 7000, 4096) for rank in (4, 5, 7))
    text += "".join(
        late(rank, 20 + rank, 0, "_REDUCE_SCATTER_BASE", 1310, 512) for rank in range(4)
    )
    answer = diagnose_text(text)
    assert answer["waited_for"]["roots"]["ranks"] == "6"
    assert [one["cause"] for one in answer["causes"] if one["severity"] != "info"] == []


def test_killed_process_has_the_rank_of_the_other_report_of_it():
    text = (
        "[2024-02-14 04:11:36,193] torch.distributed.elastic.multiprocessing.api: [ERROR] failed"
        " (exitcode: -9) local_rank: 5 (pid: 777) of binary: /opt/conda/bin/python\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2024-02-14_04:11:34\n"
        "  host      : node-7\n  rank      : 13 (local_rank: 5)\n  exitcode  : -9 (pid: 777)\n"
        "  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 777\n"
    )
    where = diagnose_text(text)["causes"][0]["where"]
    assert where[:2] == ["rank 13", "host node-7"] and "local rank 5" not in where
    alone = diagnose_text(text.splitlines()[0] + "\n")["causes"][0]["where"]
    assert "local rank 5" in alone


@pytest.mark.parametrize(("silent", "named"), [((4,), "4"), ((1, 4, 6), "")])
def test_many_ranks_without_a_line_are_missing_from_the_log_and_not_accused(silent, named):
    ranks = [rank for rank in range(9) if rank not in silent]
    text = "".join(late(rank, "5(mesh_all)", rank, "ALLREDUCE", 88, 64) for rank in ranks)
    waited = diagnose_text(text)["waited_for"]
    assert waited["roots"]["ranks"] == named
    assert waited["missing"]["ranks"] == ",".join(map(str, silent))


def test_a_code_of_cuda_without_the_call_that_failed_is_no_cause():
    for code in ("802", "803", "invalid device (101)", "400", "700"):
        answer = diagnose_text(f"[rank2]: RuntimeError: CUDA error: {code}\n")
        assert [one for one in answer["causes"] if one["severity"] != "info"] == []
