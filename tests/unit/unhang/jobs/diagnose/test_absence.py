"""Missing output: ranks that answer no signal, ranks that wait alone, processes with different world sizes."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose

WAIT = (
    "[rank{0}]:[E105 10:31:25.1 ProcessGroupNCCL.cpp:689] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=23, OpType=ALLREDUCE, "
    "NumelIn={1}, NumelOut={1}, Timeout(ms)=12000) ran for 12044 milliseconds before timing out.\n"
)
ANSWER = (
    "[rank{0}]:[E105 10:31:26.8 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank {0}] Received a dump signal due to a collective timeout from "
    "{1} and we will try our best to dump the debug info. Last enqueued NCCL work: {2}, last completed NCCL work: 22.\n"
)
ROOT = "Root Cause (first observed failure):\n[0]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -6 (pid: 4301)\n"


def causes(tmp_path, text):
    """The causes above info, first first."""
    log = tmp_path / "job.log"
    log.write_text(text)
    return [cause["cause"] for cause in diagnose([str(log)])["causes"] if cause["severity"] != "info"]


def waits(*ranks):
    """Ranks that wait, and answer their own signal."""
    return "".join(WAIT.format(rank, 9000) for rank in ranks) + "".join(ANSWER.format(rank, " this local rank", 24) for rank in ranks)


def test_rank_that_answers_no_signal_has_left(tmp_path):
    others = "[rank2] step 9 done\n" + waits(0, 1, 3)
    assert causes(tmp_path, others)[0] == "rank_desync_app"
    assert causes(tmp_path, waits(0))[0] == "rank_desync_app"
    sleeps = ANSWER.format(2, " rank 0", 22)
    assert causes(tmp_path, others + sleeps)[0] == "slow_rank_or_io"


def test_one_rank_alone_in_the_launchers_whole_report_waits_for_another(tmp_path):
    assert causes(tmp_path, WAIT.format(0, 9000) + ROOT)[0] == "rank_desync_app"
    assert causes(tmp_path, WAIT.format(0, 9000))[0] == "watchdog_timeout_too_short"


def test_one_collective_with_two_sizes_is_no_matter_of_the_limit(tmp_path):
    assert causes(tmp_path, WAIT.format(0, 9000) + WAIT.format(1, 4500)) == ["rank_desync_app"]
    assert "rank_desync_app" not in causes(tmp_path, WAIT.format(0, 9000) + WAIT.format(1, 9000))


@pytest.mark.parametrize(("world", "first"), [("4", "launch_mismatch"), ("2", "firewall_ports")])
def test_processes_that_take_the_job_for_one_of_different_size_were_launched_unlike(tmp_path, world, first):
    told = f"rank 0 of 2 starting\nrank 1 of {world} starting\n"
    text = f"{told}torch.distributed.DistStoreError: Timed out after 31 seconds waiting for clients. 1/2 clients joined.\n"
    assert causes(tmp_path, text)[0] == first


def test_ranks_that_all_wait_to_receive_began_with_the_same_half_of_an_exchange(tmp_path):
    both = WAIT.format(0, 9000) + WAIT.format(1, 9000)
    assert causes(tmp_path, both.replace("ALLREDUCE", "RECV"))[0] == "rank_desync_app"
    assert "rank_desync_app" not in causes(tmp_path, both)


def test_rank_that_alone_runs_out_of_time_in_gloo_waits_for_one_that_is_elsewhere(tmp_path):
    wait = "[rank0]: RuntimeError: [gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 10000ms for recv operation to complete\n"
    root = ROOT.replace("-6", "1")
    assert causes(tmp_path, wait + root)[0] == "slow_rank_or_io"
    assert "slow_rank_or_io" not in causes(tmp_path, "[rank1]: KeyError: 'label'\n" + wait + root)


def test_rank_that_lives_outside_of_the_collective_is_no_matter_of_the_limit(tmp_path):
    assert causes(tmp_path, waits(0) + ANSWER.format(1, " rank 0", 22))[0] == "slow_rank_or_io"
