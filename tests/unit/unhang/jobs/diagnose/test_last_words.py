"""Ranks that did not come to a collective: the last thing that they printed stands in the answer,
and a lone watchdog's line makes no finding beside it."""

from __future__ import annotations

import pytest

from unhang.jobs.diagnose.diagnosing import diagnose_text
from unhang.jobs.diagnose.logs.last_words import LastWords

WAITS = (
    "[rank{rank}]:[E302 11:00:00.120000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught"
    " collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn={numel},"
    " NumelOut={numel}, Timeout(ms)=600000) ran for 600041 milliseconds before timing out.\n"
)
OF_RANK_1 = (
    "[rank1] reading shard 77 of 90",
    "[rank1]: reading shard 77 of 90",
    "[2026-03-02 10:50:00] Rank 1: reading shard 77 of 90",
    "rank=1 - reading shard 77 of 90",
    "1: reading shard 77 of 90",
    "[default1]:reading shard 77 of 90",
    "(Worker_TP1 pid=212) reading shard 77 of 90",
    "(VllmWorker TP1 pid=212) reading shard 77 of 90",
)


@pytest.mark.parametrize("line", OF_RANK_1)
def test_rank_that_did_not_come_is_shown_with_its_last_line(line):
    text = (
        f"[rank1] starts\n{line}\n"
        + "".join(WAITS.format(rank=rank, seq=7, numel=1) for rank in (0, 2))
        + "[rank1]: shutting down\n"
    )
    why = diagnose_text(text)["outcome"]["why"]
    assert why.endswith(
        "nothing shows that rank 1 came to it; rank 1 last printed: reading shard 77 of 90 [line 2]"
    )


@pytest.mark.parametrize(
    "line",
    [
        "Rank 1 prints nothing more",
        "all ranks wait, and rank 1 too",
        "rank 1:",
        "world of rank 12 and 1 more",
        "step 1: loss 2.0",
    ],
)
def test_sentence_about_a_rank_is_not_its_line(line):
    words = LastWords()
    words.note([line.encode()], 1, "log")
    assert words.lines == {}


def test_ranks_that_came_are_not_quoted():
    text = "[rank0] loads\n[rank1] loads\n" + "".join(
        WAITS.format(rank=rank, seq=7, numel=1) for rank in (0, 1)
    )
    assert "last printed" not in diagnose_text(text)["outcome"]["why"]


def test_secret_in_the_last_line_of_a_rank_is_masked():
    why = diagnose_text(
        "[rank1] login with HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789\n"
        + WAITS.format(rank=0, seq=7, numel=1)
    )["outcome"]["why"]
    assert "rank 1 last printed: login" in why and "hf_abcdefghij" not in why


@pytest.mark.parametrize("program", ["vLLM engine started\n", "step 1 loss 2.0\nstep 2 loss 1.9\n"])
def test_lone_timeout_of_a_large_collective_after_many_is_never_more_than_a_remark(program):
    found = diagnose_text(program + WAITS.format(rank=0, seq=261714, numel=387840))
    assert {one["severity"] for one in found["causes"]} <= {"info"} and found["outcome"][
        "word"
    ] == "no_end"


def test_barrier_at_which_processes_leave_names_no_firewall():
    left = (
        "status: INTERNAL: Shutdown barrier has been passed with status: 'DEADLINE_EXCEEDED:"
        " Barrier timed out. Barrier_id: Shutdown::77.\n"
    )
    assert (
        diagnose_text(
            f"E0813 agent.cc:354] Failed to disconnect from coordination service with {left}"
        )["causes"]
        == []
    )
    met = diagnose_text(
        "XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: PjRT_Client_Connect\n"
    )
    assert "firewall_ports" in [one["cause"] for one in met["causes"]]


UNLIKE = "rank {}: broadcast torch.cuda.{} {}\n"


def test_rank_whose_last_line_is_unlike_those_of_all_others_is_shown():
    half = "".join(UNLIKE.format(rank, "HalfTensor", 421) for rank in (0, 1, 3))
    found = diagnose_text(
        "It hangs in the first broadcast.\n" + half + UNLIKE.format(2, "FloatTensor", 52)
    )
    assert (
        "rank 2 last printed: broadcast torch.cuda.FloatTensor 52 [line 5]; ranks 0-1, 3 last"
        " printed: broadcast" in found["outcome"]["why"]
    )
    assert found["collect_next"][0].startswith("py-spy dump --pid PID of rank 2,")


@pytest.mark.parametrize(
    "tensors",
    [("HalfTensor",) * 3, ("HalfTensor", "FloatTensor", "IntTensor"), ("A", "A", "B", "B")],
)
def test_ranks_that_print_alike_or_all_unlike_are_not_told_apart(tensors):
    text = "It hangs in the first broadcast.\n" + "".join(
        UNLIKE.format(rank, tensor, 40 + rank) for rank, tensor in enumerate(tensors)
    )
    assert "last printed" not in diagnose_text(text)["outcome"]["why"]


@pytest.mark.parametrize(("crash", "word"), [
    ("(EngineCore_DP0 pid=180) RuntimeError: cancelled", "no_end"),
    ("[rank0]: RuntimeError: cancelled", "no_end"),
    ("[rank1]: KeyError: 'labels'", "cause"),
])  # fmt: skip
def test_exception_after_the_timeout_of_its_own_rank_follows_from_it(crash, word):
    wait = WAITS.format(rank=0, seq=90211, numel=294912)
    assert diagnose_text(f"{wait}{crash}\n")["outcome"]["word"] == word
    assert diagnose_text(f"{crash}\n{wait}")["outcome"]["word"] != "no_end"


def test_the_rank_that_printed_nothing_is_named_where_all_others_printed_the_same():
    said = "".join(f"[rank{rank}] wraps its layers\n" for rank in (0, 1, 2, 4, 5, 6, 7))
    found = diagnose_text(f"starts 8 ranks\n{said}")
    assert found["outcome"]["why"].endswith(
        "rank 3 printed nothing; ranks 0-2, 4-7 last printed: wraps its layers [line 2]"
    )
    assert found["collect_next"][0].startswith("py-spy dump --pid PID of rank 3")


@pytest.mark.parametrize(
    "ranks",
    [(0, 8), (0, 1, 2, 3), (0, 2, 4, 6), (1, 2, 3, 4)],
    ids=["one in eight", "all", "every second one", "counted from 1"],
)
def test_ranks_are_not_missed_where_few_print(ranks):
    said = "".join(f"[rank{rank}] wraps its layers\n" for rank in ranks)
    assert "printed nothing" not in diagnose_text(f"starts 8 ranks\n{said}")["outcome"]["why"]
