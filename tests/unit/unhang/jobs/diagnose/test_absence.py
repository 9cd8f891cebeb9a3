"""Missing output: ranks that answer no signal, ranks that wait alone, processes with different
world sizes."""

from __future__ import annotations

from job_diagnosis import diagnose

WAIT = (
    "[rank{0}]:[E105 10:31:25.1 ProcessGroupNCCL.cpp:689] [Rank {0}] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=23, OpType=ALLREDUCE, NumelIn={1}, NumelOut={1},"
    " Timeout(ms)=12000) ran for 12044 milliseconds before timing out.\n"
)
ANSWER = (
    "[rank{0}]:[E105 10:31:26.8 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank {0}]"
    " Received a dump signal due to a collective timeout from {1} and we will try our best to dump"
    " the debug info. Last enqueued NCCL work: {2}, last completed NCCL work: 22.\n"
)


def causes(tmp_path, text):
    """The causes above info, first first."""
    log = tmp_path / "job.log"
    log.write_text(text)
    return [
        cause["cause"] for cause in diagnose([str(log)])["causes"] if cause["severity"] != "info"
    ]


def waits(*ranks):
    """Ranks that wait, and answer their own signal."""
    return "".join(WAIT.format(rank, 9000) for rank in ranks) + "".join(
        ANSWER.format(rank, " this local rank", 24) for rank in ranks
    )


def test_rank_that_answers_no_signal_has_left(tmp_path):
    others = "[rank2] step 9 done\n" + waits(0, 1, 3)
    assert causes(tmp_path, others)[0] == "rank_desync_app"
    assert causes(tmp_path, waits(0))[0] == "rank_desync_app"


def test_one_collective_with_two_sizes_is_no_matter_of_the_limit(tmp_path):
    assert causes(tmp_path, WAIT.format(0, 9000) + WAIT.format(1, 4500)) == ["rank_desync_app"]
    assert "rank_desync_app" not in causes(tmp_path, WAIT.format(0, 9000) + WAIT.format(1, 9000))
