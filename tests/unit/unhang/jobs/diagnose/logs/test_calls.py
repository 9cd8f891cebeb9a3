"""NCCL's trace of calls: the progress of each rank."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from job_diagnosis import diagnose

from unhang.core.redact import redacted
from unhang.jobs.diagnose.logs.calls import traced_calls
from unhang.jobs.diagnose.logs.reading import Input, read_blocks
from unhang.jobs.diagnose.matching.scanning import Scan, Sieve, scan_blocks
from unhang.jobs.diagnose.matching.signatures import load_signatures

SIEVE = Sieve(load_signatures())
TIMEOUT = (
    "[rank{rank}]:[E105 10:31:12.1 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=4096,"
    " NumelOut=4096, Timeout(ms)=600000) ran for 600079 milliseconds before timing out."
)


def set_up(rank: int, nranks: int = 3, group: str = "0x77") -> str:
    return (
        f"{head(rank)} ncclCommInitRank comm 0x55{rank:02x} rank {rank} nranks {nranks} cudaDev 0"
        f" nvmlDev 0 busId 1a000 commId {group} - Init COMPLETE"
    )


def head(rank: int) -> str:
    return f"node{rank}:{500 + rank}:{900 + rank} [0] NCCL INFO"


def call(rank: int, number: int, op: str = "AllReduce", count: int = 4096, nranks: int = 3) -> str:
    given = (
        f"sendbuff 0x7f{number:04x} recvbuff 0x7e{number:04x} count {count} datatype 7 op 0 root 0"
    )
    return (
        f"{head(rank)} {op}: opCount {number:x} {given} comm 0x55{rank:02x} [nranks={nranks}]"
        f" stream 0x5c{rank:02x}"
    )


def read(tmp_path: Path, *lines: str) -> dict:
    log = tmp_path / "job.log"
    log.write_text("\n".join(lines) + "\n")
    return diagnose([str(log)])


def scan(*lines: str) -> Scan:
    return scan_blocks(
        read_blocks(io.BytesIO("\n".join(lines).encode() + b"\n"), Input("log")), "log", SIEVE
    )


def traced(*lines: str):
    return traced_calls(scan(*lines).calls.values(), lines)


def causes(diagnosis: dict) -> dict[str, dict]:
    return {one["cause"]: one for one in diagnosis["causes"] if one["severity"] != "info"}


def test_rank_that_stopped_before_the_others_is_named_with_its_line(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        *map(set_up, range(3)),
        *[call(rank, 11) for rank in range(3)],
        call(0, 12),
        call(1, 12),
        TIMEOUT.format(rank=0),
    )
    wait = found["waited_for"]["waits"][0]
    assert (found["waited_for"]["roots"]["ranks"], wait["seq"]) == ("2", 12)
    assert {"rank_desync_app", "slow_rank_or_io"} <= set(causes(found))
    assert any(
        line["line"] == 6 and "opCount b" in line["text"]
        for line in causes(found)["slow_rank_or_io"]["evidence"]
    )


def test_different_calls_under_one_number_are_the_first_cause(tmp_path: Path) -> None:
    calls = [call(0, 12), call(1, 12), call(2, 12, "AllGather")]
    found = read(tmp_path, *map(set_up, range(3)), *calls, TIMEOUT.format(rank=0))
    assert found["causes"][0]["cause"] == "rank_desync_app"
    assert "AllGather of 4,096 elements, datatype 7: rank 2" in str(found["causes"][0]["evidence"])


def test_log_of_a_running_job_that_breaks_off_is_no_trouble(tmp_path: Path) -> None:
    calls = [call(rank, number) for number in range(40) for rank in range(3)]
    found = read(tmp_path, *map(set_up, range(3)), *calls, call(0, 40))
    assert (causes(found), found["waited_for"]) == ({}, None)


def test_without_set_up_lines_the_processes_stand_for_the_ranks() -> None:
    trace = traced(*[call(rank, 5 + (not rank), nranks=8) for rank in range(8)])
    assert trace.who(trace.answer.roots[-1:], "communicator") == "node1:501 (after AllReduce 5)"
    assert len(trace.answer.roots) == 7


def test_two_communicators_of_one_process_are_kept_apart() -> None:
    other = [call(rank, 90).replace("comm 0x55", "comm 0x66") for rank in range(3)]
    second = [set_up(rank, group="0x88").replace("comm 0x55", "comm 0x66") for rank in range(3)]
    lines = [*map(set_up, range(3)), *second, *[call(rank, 12) for rank in range(3)], *other]
    full = {(one.group.name, one.seq) for one in traced(*lines).answer.full}
    assert full == {("communicator 0x77", 12), ("communicator 0x88", 90)}


def test_a_rank_that_waits_in_another_communicator_only_follows(tmp_path: Path) -> None:
    """Ranks 0 to 3; tensor groups 0, 1 and 2, 3; rank 3 calls nothing more, and rank 2 waits for
    it, so that ranks 0 and 1 wait for rank 2."""
    pair = [
        set_up(rank, 2, f"0x9{rank // 2}")
        .replace("comm 0x55", "comm 0x66")
        .replace(f"rank {rank} nranks", f"rank {rank % 2} nranks")
        for rank in range(4)
    ]
    of_pair = [call(rank, 7 + (rank == 2), nranks=2) for rank in range(4)]
    found = read(
        tmp_path,
        *[set_up(rank, 4) for rank in range(4)],
        *pair,
        *[call(rank, 12 + (rank < 2), nranks=4) for rank in range(4)],
        *[line.replace("comm 0x55", "comm 0x66") for line in of_pair],
        TIMEOUT.format(rank=0),
    )
    assert found["waited_for"]["roots"]["ranks"] == "3"
    assert "rank 3 (after AllReduce 12) did not call" in str(found["causes"])


def test_hosts_of_a_trace_are_masked(tmp_path: Path) -> None:
    found = read(
        tmp_path, *[call(rank, 5 + (not rank)) for rank in range(3)], TIMEOUT.format(rank=0)
    )
    assert sorted(found["facts"]["hosts"]) == ["node0", "node1", "node2"]
    assert "node1:501 (after" in str(found) and "node1" not in str(redacted(found))


def test_more_processes_than_ranks_are_not_compared() -> None:
    assert not traced(*[call(rank, rank, nranks=2) for rank in range(4)]).calls


def test_sends_and_receives_are_no_collectives() -> None:
    assert not scan(call(0, 3, "Send"), call(1, 3, "Recv")).calls


def test_newest_call_wins_across_blocks_and_lines_that_only_look_like_calls_are_passed_over() -> (
    None
):
    lines = [call(0, number) for number in range(30_000)]
    found = scan(
        *lines, "x: opCount ", ": opCount zz comm 0x", head(0) + " AllReduce: opCount 1 sendbuff"
    )
    ((key, newest),) = found.calls.items()
    assert (key, newest.number, newest.line) == (("node0:500", "0x5500"), 29_999, 30_000)


@pytest.mark.timeout(300)  # a search that goes back over the line for each word would take hours
def test_trace_made_to_be_slow_is_read() -> None:
    assert not scan(
        *[f"{'a.' * 400_000}{number}: opCount {'x comm ' * 90_000}{number}" for number in range(8)]
    ).calls
