"""Who is waited for, as a row of a document and in the words of a screen."""

from dataclasses import replace

import pytest
from msgspec import to_builtins

from unhang.core.schemas.check import check_schema
from unhang.core.verdict.waited_rows import (
    Beside,
    WaitedRow,
    in_ranks,
    ranks_row,
    waited_for_row,
    waited_headline,
    waited_lines,
)
from unhang.core.verdict.waiting import LAUNCHED, Group, Step, WaitedFor, waited_for

TP = Group("12(mesh_tp)", tuple(range(8)), 8)
DP = [Group(f"{20 + rank}(mesh_dp)", (rank, rank + 8), 2) for rank in range(8)]
STEPS = [
    *(Step(rank, TP.name, "ALLREDUCE", 5120, LAUNCHED, source="log.txt", line=17 + rank)
      for rank in range(8) if rank != 5),
    *(Step(rank + 8, group.name, "ALLREDUCE", 33, LAUNCHED) for rank, group in enumerate(DP)),
]  # fmt: skip
BESIDE = Beside(
    hosts={5: "gpu07"},
)


def row_of(answer: WaitedFor, beside: Beside = BESIDE) -> WaitedRow:
    row = waited_for_row(answer, beside)
    assert row is not None
    assert [str(fault) for fault in check_schema(to_builtins(row), "waited-for-1")] == []
    return row


def test_the_headline_names_the_rank_its_host_and_the_operation_in_which_the_others_wait():
    row = row_of(waited_for([TP, *DP], STEPS, seen=range(16)))
    assert waited_headline(row) == (
        "rank 5 (gpu07) is waited for: 7 of 8 ranks of 12(mesh_tp) wait in ALLREDUCE #5120"
    )
    assert row.certainty == "likely"
    assert waited_lines(row) == [
        "no line shows that rank 5 of 12(mesh_tp) called it",
        "8 groups of mesh_dp wait behind it",
    ]


def test_a_rank_without_evidence_is_said_to_have_brought_none():
    row = row_of(waited_for([TP], STEPS[:7]), Beside())
    assert waited_headline(row).startswith("rank 5 is waited for: 7 of 8 ranks of 12(mesh_tp)")
    assert waited_lines(row) == ["without a line or dump here: rank 5"]


def test_ranks_that_wait_for_each_other_are_named_with_both_groups():
    groups = [Group("a", (0, 1)), Group("b", (0, 1))]
    steps = [Step(0, "a", "all_reduce", 1, LAUNCHED), Step(1, "b", "all_reduce", 1, LAUNCHED)]
    row = row_of(waited_for(groups, steps, seen=[0, 1], complete=True))
    assert waited_headline(row) == "ranks 0-1 wait for each other, in different groups"
    assert waited_lines(row) == [
        "1 of 2 ranks of a waits in all_reduce #1",
        "1 of 2 ranks of b waits in all_reduce #1",
    ]


def test_unlike_calls_of_one_number_are_the_headline_the_odd_rank_first():
    steps = [
        Step(rank, "tp", "all_reduce" if rank != 2 else "all_gather", 7, LAUNCHED)
        for rank in range(4)
    ]
    row = row_of(waited_for([Group("tp", (0, 1, 2, 3))], steps, seen=range(4), complete=True))
    assert waited_headline(row) == (
        "ranks of tp call different things at #7: rank 2 all_gather; ranks 0-1,3 all_reduce"
    )
    where = "/w/loss.py:7 in tokens", "/w/train.py:9 in step"
    steps = [replace(one, sizes="8 elements", where=where[one.rank == 2]) for one in steps]
    row = row_of(waited_for([Group("tp", (0, 1, 2, 3))], steps, seen=range(4), complete=True))
    assert waited_headline(row).endswith(
        "rank 2 all_gather at train.py:9 in step; ranks 0-1,3 all_reduce at loss.py:7 in tokens"
    )


def test_an_operation_that_all_entered_and_none_left_accuses_nobody():
    steps = [Step(rank, "tp", "all_reduce", 7, LAUNCHED) for rank in range(2)]
    row = row_of(waited_for([Group("tp", (0, 1))], steps, seen=range(2), complete=True))
    assert waited_headline(row) == "2 of 2 ranks of tp entered all_reduce #7, and none left it"
    assert row.roots.count == 0


@pytest.mark.parametrize(
    ("ranks", "shown"),
    [
        ([5], "rank 5"),
        (range(10_000), "ranks 0-9999"),
        (range(0, 10_000, 2), "ranks 0,2,4,6,8,10,12,14,16,18,20,22,24,26,28 and others, 5,000"
         " ranks"),
    ],
)  # fmt: skip
def test_ranks_are_folded_and_many_single_ones_counted(ranks, shown):
    assert in_ranks(ranks_row(list(ranks))).startswith(shown[:40])
    assert len(in_ranks(ranks_row(list(ranks)))) < 80


def test_a_name_from_a_log_reaches_the_headline_without_control_characters():
    group = Group("tp\x1b[31m" + "x" * 5000, (0, 1))
    row = row_of(waited_for([group], [Step(0, group.name, "op\n", 1, LAUNCHED)], seen=[0, 1]))
    assert waited_headline(row).isprintable() and len(waited_headline(row)) < 300
