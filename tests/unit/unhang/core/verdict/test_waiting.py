"""Who is waited for, over groups of a job: tensor × pipeline × data."""

from unhang.core.verdict.waiting import (
    COMPLETED,
    LAUNCHED,
    LIKELY,
    POSSIBLE,
    STARTED,
    SURE,
    Group,
    Step,
    waited_for,
)

TP = [Group("tp0", (0, 1)), Group("tp1", (2, 3))]
DP = [Group("dp0", (0, 2)), Group("dp1", (1, 3))]


def step(rank: int, group: str, seq: int, state: str = LAUNCHED, op: str = "all_reduce") -> Step:
    return Step(rank, group, op, seq, state)


def test_the_rank_that_launched_nothing_is_the_root_and_other_groups_follow():
    steps = [step(2, "tp1", 7), step(0, "dp0", 3), step(1, "dp1", 3), step(3, "tp1", 6, COMPLETED)]
    answer = waited_for([*TP, *DP], steps, seen=range(4), complete=True)
    assert answer.roots == (3,)
    assert {wait.group.name for wait in answer.waits} == {"tp1", "dp1"}
    assert [wait.group.name for wait in answer.follows] == ["dp0"]
    assert answer.certainty == SURE


def test_a_rank_without_evidence_is_awaited_and_named_as_missing():
    answer = waited_for(TP, [step(2, "tp1", 7)], seen=[0, 1, 2])
    assert answer.roots == answer.missing == (3,)
    assert answer.certainty == LIKELY


def test_who_brought_no_evidence_and_is_not_awaited_is_no_root():
    answer = waited_for(TP, [step(0, "tp0", 7)], seen=[0, 1])
    assert answer.roots == (1,)
    assert answer.missing == (2, 3)


def test_without_members_the_answer_is_only_possible():
    steps = [step(0, "g", 5), step(1, "g", 5), step(2, "g", 4, COMPLETED)]
    answer = waited_for([], steps)
    assert answer.roots == (2,)
    assert answer.certainty == POSSIBLE


def test_two_groups_called_in_unlike_order_are_a_ring_without_a_root():
    groups = [Group("a", (0, 1)), Group("b", (0, 1))]
    answer = waited_for(groups, [step(0, "a", 1), step(1, "b", 1)], seen=[0, 1], complete=True)
    assert answer.roots == ()
    assert answer.ring == (0, 1)


def test_a_rank_whose_kernel_has_not_started_while_the_others_have_is_awaited():
    steps = [step(0, "tp0", 9, STARTED), step(1, "tp0", 9, LAUNCHED)]
    assert waited_for(TP, steps, seen=range(4), complete=True).roots == (1,)


def test_all_in_one_operation_accuses_nobody():
    steps = [step(0, "tp0", 9), step(1, "tp0", 9)]
    answer = waited_for(TP, steps, seen=range(4), complete=True)
    assert answer.roots == answer.ring == ()
    assert [wait.group.name for wait in answer.full] == ["tp0"]


def test_unlike_calls_count_only_under_one_number_of_one_group():
    steps = [step(0, "tp0", 9, op="all_gather"), step(1, "tp0", 9), step(2, "tp1", 9)]
    answer = waited_for(TP, steps, seen=range(4), complete=True)
    assert answer.different[0].calls == {"all_gather": (0,), "all_reduce": (1,)}
    assert answer.different[0].group.name == "tp0"


def test_a_job_whose_operations_all_ended_has_nothing_to_say():
    steps = [step(rank, group.name, 5, COMPLETED) for group in (*TP, *DP) for rank in group.members]
    answer = waited_for([*TP, *DP], steps, seen=range(4), complete=True)
    assert not (answer.roots or answer.waits or answer.ring or answer.full or answer.different)
