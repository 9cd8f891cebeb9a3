"""A timeout without another line: who came to the collective is the finding, and a longer timeout
is not the advice."""

from __future__ import annotations

import pytest
from job_diagnosis import diagnose

from unhang.jobs.diagnose.rendering import render_table

LINE = (
    "[E418 11:41:09.4 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation"
    " timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel},"
    " Timeout(ms)=1800000) ran for 1800037 milliseconds before timing out."
)


def loud(found):
    return [cause["cause"] for cause in found["causes"] if cause["severity"] != "info"]


@pytest.mark.parametrize(
    ("op", "seq", "numel"),
    [
        ("BROADCAST", 1, 1),
        ("ALLGATHER", 31904, 8),
        ("ALLREDUCE", 1, 4096),
        ("BROADCAST", 1, 253440000),
    ],
)
def test_one_rank_that_waits_is_no_matter_of_the_limit(answer, op, seq, numel):
    found = answer(LINE.format(rank=1, op=op, seq=seq, numel=numel))
    assert loud(found) == [] and found["outcome"]["word"] == "no_end"
    assert (
        "rank 1 waited in" in found["outcome"]["why"]
        and "no line of the other ranks" in found["outcome"]["why"]
    )
    assert "every other rank" in found["collect_next"][0] and "timedelta" not in render_table(found)


def test_ranks_that_all_wait_in_their_first_transfer_get_nothing_from_each_other(answer):
    found = answer(
        "\n".join(
            LINE.format(rank=rank, op="BROADCAST", seq=1, numel=253440000) for rank in range(3)
        )
        + "\nworld_size=3\n"
    )
    assert "these are all" in found["outcome"]["why"] and {
        one["cause"] for one in found["causes"][:2]
    } == {"acs_iommu", "driver_p2p_bug"}


def test_two_messages_on_one_line_are_both_read(answer):
    first, second = (
        LINE.format(rank=rank, op="ALLREDUCE", seq=seq, numel=4096)
        for rank, seq in ((0, 1516), (1, 1517))
    )
    found = answer(f"Training:  50%|#####     | 1/2 {first}[rank1]:{second}")
    assert [one["seq"] for one in found["facts"]["collectives"]] == [1516, 1517]
    assert (
        found["causes"][0]["cause"] == "rank_desync_app"
        and found["causes"][0]["certainty"] == "likely"
    )


def test_what_a_line_does_not_say_is_not_printed(answer):
    shown = render_table(
        answer(
            "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3,"
            " Timeout(ms)=0) ran for 5 milliseconds before timing out."
        )
    )
    assert "?" not in shown and "limit 0" not in shown


def test_rank_that_printed_its_last_step_first_is_named_whatever_the_program_is(answer):
    found = answer(
        "".join(
            f"[rank{rank}] step {117 if rank == 2 else 118} of 500, mine\n" for rank in range(4)
        )
    )
    assert (
        "rank 2 stopped first: its last step is 117, the others came to 118"
        in found["outcome"]["why"]
    )
    assert "rank 2" in found["collect_next"][0]
    even = answer("".join(f"[rank{rank}] step 118 of 500, mine\n" for rank in range(4)))
    assert "stopped first" not in even["outcome"]["why"]


def test_each_rank_in_a_file_of_its_own_is_compared(tmp_path):
    for rank in range(3):
        (tmp_path / f"rank_{rank}.log").write_text(f"iteration {40 if rank else 39}: loss 2.1\n")
    assert "rank 0 stopped first" in diagnose([str(tmp_path)])["outcome"]["why"]


def test_every_cause_that_is_shown_has_a_line_of_the_log(answer):
    found = answer(
        "[rank0] step 1\n$ torchrun --nnodes=2 --nproc_per_node=8 a.py\nh:1:1 [0] NCCL INFO"
        " Bootstrap : Using eth0:198.51.100.4<0>\n"
    )
    assert all(any(line["line"] for line in cause["evidence"]) for cause in found["causes"])
    assert found["causes"] == []
    assert found["next"]["command"] == 'unhang inspect --pid "$(pgrep -of a.py)"'
