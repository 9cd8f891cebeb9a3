"""Who is waited for, over groups of a job: tensor × pipeline × data."""

import pytest

from unhang.core.verdict.waiting import (
    COMPLETED,
    LAUNCHED,
    LIKELY,
    MESSAGE,
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


def test_a_rank_that_stays_where_others_completed_lags_and_waits_nowhere():
    steps = [
        *(step(0, "tp0", seq, LAUNCHED) for seq in (5, 6, 7)),
        step(0, "dp0", 4),
        *(step(1, "tp0", seq, COMPLETED if seq < 7 else LAUNCHED) for seq in (5, 6, 7)),
        step(2, "ep0", 9),
    ]
    groups = [*TP, *DP, Group("ep0", (0, 2))]
    answer = waited_for(groups, steps, seen=range(4), complete=True)
    assert (answer.roots, answer.ring) == ((0,), ())
    assert {wait.group.name: wait.queued for wait in answer.waits} == {"tp0": (0,), "ep0": ()}
    assert [wait.group.name for wait in answer.follows] == ["dp0"]


def test_evidence_of_different_moments_says_nothing_of_its_group():
    steps = [step(0, "tp0", 4), step(1, "tp0", 9, COMPLETED)]
    answer = waited_for(TP, steps, seen=range(4), complete=True)
    assert not (answer.roots or answer.waits or answer.full)


def test_ranks_that_launched_two_groups_in_unlike_order_are_a_ring():
    groups = [Group("a", (0, 1)), Group("b", (0, 1))]
    steps = [step(0, "a", 1), step(0, "b", 1), step(1, "b", 1), step(1, "a", 1)]
    answer = waited_for(groups, steps, complete=True)
    assert answer.ring == (0, 1)
    assert [wait.group.name for wait in answer.crossed] == ["a", "b"]


def test_ranks_that_launched_two_groups_in_like_order_are_none():
    groups = [Group("a", (0, 1)), Group("b", (0, 1))]
    steps = [step(rank, group, 1) for rank in (0, 1) for group in "ab"]
    assert waited_for(groups, steps, complete=True).ring == ()


def test_a_ring_is_seen_beside_another_root():
    groups = [Group("a", (0, 1)), Group("b", (0, 1)), Group("c", (2, 3))]
    steps = [step(0, "a", 1), step(1, "b", 1), step(2, "c", 1)]
    answer = waited_for(groups, steps, seen=range(4), complete=True)
    assert (answer.roots, answer.ring) == ((3,), (0, 1))


def test_a_message_that_nobody_sent_is_likely_at_most():
    link = Group("pp 0->1", (0, 1))
    answer = waited_for([link], [step(1, "pp 0->1", 4, op=MESSAGE)], seen=[0, 1], complete=True)
    assert (answer.roots, answer.certainty) == ((0,), LIKELY)


def test_who_left_a_broadcast_early_lags_nobody_behind():
    steps = [step(0, "tp0", 3, COMPLETED, "broadcast"), step(1, "tp0", 3, op="broadcast")]
    answer = waited_for(TP, steps, seen=range(4), complete=True)
    assert answer.roots == ()


def test_unlike_calls_that_ended_are_told_with_the_number_where_they_began():
    steps = [
        step(0, "tp0", 8, COMPLETED, "all_gather"), step(1, "tp0", 8, COMPLETED),
        step(0, "tp0", 9), step(1, "tp0", 9),
    ]  # fmt: skip
    answer = waited_for(TP, steps, seen=range(4), complete=True)
    assert [wait.seq for wait in answer.different] == [8]
    assert not answer.full[0].calls
    assert [wait.seq for wait in answer.full] == [9]


def test_who_is_further_in_a_group_waits_there_for_the_rank_that_lags():
    steps = [
        *(step(0, "tp0", seq) for seq in (5, 6, 7)),
        *(step(1, "tp0", seq, COMPLETED if seq < 7 else LAUNCHED) for seq in (5, 6, 7)),
        step(3, "dp1", 2),
    ]
    answer = waited_for([*TP, *DP], steps, seen=range(4), complete=True)
    assert answer.roots == (0,)
    assert [(wait.seq, wait.waiting, wait.queued) for wait in answer.waits] == [(7, (1,), (0,))]
    assert {wait.group.name for wait in answer.follows} == {"dp1"}


def test_a_step_of_unknown_operation_differs_from_nothing():
    steps = [step(0, "tp0", 9), step(1, "tp0", 9, COMPLETED, op="")]
    assert waited_for(TP, steps, complete=True).different == ()


@pytest.mark.parametrize("wrong", [(1, 3), (2, 0)])
def test_a_rank_that_sends_where_it_never_sent_before_is_the_first_of_its_ring(wrong):
    sender, receiver = wrong
    peer = ({1, 2, 3} if receiver == 3 else {0, 1, 2}).difference(wrong).pop()
    ways = [(sender, receiver), (sender, peer), (peer, receiver)]
    links = [Group(f"pp {one}->{to}", (one, to)) for one, to in ways]
    used = [step(one, f"pp {one}->{to}", 1, COMPLETED, MESSAGE) for one, to in ways[1:]]
    steps = [
        *used,
        step(sender, f"pp {sender}->{receiver}", 2, op=MESSAGE),
        step(peer, f"pp {sender}->{peer}", 2, op=MESSAGE),
        step(receiver, f"pp {peer}->{receiver}", 2, op=MESSAGE),
    ]
    ring = waited_for(links, steps, complete=True).ring
    assert ring[0] == sender and sorted(ring) == sorted((sender, receiver, peer))


def test_who_completed_something_else_under_the_number_makes_nobody_lag():
    steps = [step(0, "tp0", 8, COMPLETED, "all_gather"), step(1, "tp0", 8)]
    answer = waited_for(TP, steps, seen=range(4), complete=True)
    assert answer.different[0].calls == {"all_gather": (0,), "all_reduce": (1,)}
    assert answer.roots == ()


def test_who_waits_behind_an_operation_that_all_entered_accuses_nobody():
    steps = [step(0, "tp0", 9), step(1, "tp0", 9), step(2, "dp0", 4), step(3, "dp1", 4)]
    answer = waited_for([*TP, *DP], steps, seen=range(4), complete=True)
    assert (answer.roots, answer.ring, answer.certainty) == ((), (), POSSIBLE)
    assert [wait.group.name for wait in answer.full] == ["tp0"]
    assert {wait.group.name for wait in answer.follows} == {"dp0", "dp1"}


def test_a_rank_whose_evidence_is_older_in_one_group_is_behind_in_none():
    steps = [
        step(0, "tp0", 4, COMPLETED), step(1, "tp0", 9, COMPLETED), step(2, "dp0", 7),
    ]  # fmt: skip
    answer = waited_for([*TP, *DP], steps, seen=range(4), complete=True)
    assert answer.roots == answer.waits == ()


def test_a_ring_explains_why_nobody_heard_of_a_rank_without_evidence():
    groups = [Group("a", (0, 1, 2, 3)), Group("b", (0, 1, 2, 3))]
    steps = [step(0, "a", 1), step(1, "b", 1), step(2, "b", 1)]
    answer = waited_for(groups, steps, complete=True)
    assert (answer.roots, answer.missing) == ((), (3,))
    assert answer.ring == (0, 1, 2)  # rank 0 waits in another group than the others


def test_a_kernel_that_has_not_started_excuses_a_rank_without_evidence():
    groups = [Group("a", (0, 1, 2))]
    steps = [step(0, "a", 1, STARTED), step(1, "a", 1)]
    answer = waited_for(groups, steps, complete=True)
    assert (answer.roots, answer.missing, answer.certainty) == ((1,), (2,), POSSIBLE)


def test_a_message_that_has_left_does_not_hold_its_receiver():
    link, other = Group("pp 0->1", (0, 1)), Group("pp 1->2", (1, 2))
    steps = [
        step(0, "pp 0->1", 1, COMPLETED, MESSAGE), step(1, "pp 0->1", 1, op=MESSAGE),
        step(2, "pp 1->2", 1, op=MESSAGE),
    ]  # fmt: skip
    answer = waited_for([link, other], steps, seen=range(3), complete=True)
    assert (answer.roots, answer.full) == ((1,), ())


def test_thousands_that_wait_for_thousands_are_told_at_once():
    """Without one walk for each root: that took minutes."""
    everybody = Group("default_pg", tuple(range(4096)))
    steps = [step(rank, "default_pg", 5) for rank in range(2048)]
    answer = waited_for([everybody], steps, seen=range(4096), complete=True)
    assert answer.roots == tuple(range(2048, 4096))


TRIPLE = [Group("row", (10, 11, 12)), Group("all", tuple(range(10, 16)))]


def rounds(ranks: tuple[int, ...], groups: str, times: int) -> list[Step]:
    """Whole rounds of the groups, which all completed."""
    return [
        step(rank, group, number, COMPLETED)
        for number in range(1, times + 1) for rank in ranks for group in groups.split()
    ]  # fmt: skip


def test_who_skipped_what_it_called_the_time_before_is_named_alone():
    """Of two that wait for each other nobody is in the majority; what each did before tells."""
    groups = [Group("pair", (4, 7)), Group("both", (4, 7))]
    before = rounds((4, 7), "pair both", 2)
    steps = [*before, step(4, "pair", 3), step(7, "both", 3)]
    answer = waited_for(groups, steps, complete=True)
    assert (answer.roots, set(answer.ring), answer.certainty) == ((7,), {4, 7}, LIKELY)
    assert answer.left_the_order
    steps = [*rounds((4, 7), "both pair", 2), step(4, "pair", 3), step(7, "both", 3)]
    assert waited_for(groups, steps, complete=True).roots == (4,)


def test_of_a_ring_without_a_past_the_majority_decides_and_it_is_only_possible():
    steps = [step(rank, "row", 1) for rank in (10, 11)]
    steps += [step(rank, "all", 1) for rank in (12, 13, 14, 15)]
    answer = waited_for(TRIPLE, steps, complete=True)
    assert (answer.roots, answer.certainty) == ((12,), POSSIBLE)
    assert [wait.group.name for wait in answer.waits] == ["row"]
    assert [wait.group.name for wait in answer.follows] == ["all"]


@pytest.mark.parametrize(("most", "roots"), [(7, (12,)), (6, (11,))])
def test_who_called_less_than_those_beside_it_left_their_order(most, roots):
    steps = [step(11, "row", 1), *(step(rank, "all", 1) for rank in (12, 13, 14, 15))]
    groups = [Group("row", (11, 12)), Group("all", (11, 12, 13, 14, 15))]
    launched = {11: 6, 12: 6, **dict.fromkeys((13, 14, 15), most)}
    answer = waited_for(groups, steps, complete=True, launched=launched)
    assert answer.roots == roots


def test_two_of_two_that_wait_for_each_other_accuse_nobody_alone():
    groups = [Group("pair", (4, 7)), Group("both", (4, 7))]
    answer = waited_for(groups, [step(4, "pair", 1), step(7, "both", 1)], complete=True)
    assert (answer.roots, answer.ring) == ((), (4, 7))


def test_the_one_of_many_that_entered_two_groups_in_another_order_is_named():
    groups = [Group("x", (0, 1, 2)), Group("y", (0, 1, 2))]
    steps = [step(rank, group, 1) for rank in (0, 2) for group in "xy"]
    steps += [step(1, "y", 1), step(1, "x", 1)]
    answer = waited_for(groups, steps, complete=True)
    assert (answer.roots, answer.ring, answer.certainty) == ((1,), (1, 0, 2), POSSIBLE)


def test_who_may_wait_for_a_rank_that_never_came_needs_no_evidence_of_its_own():
    """Rank 5 has no dump: it is in the pair of rank 4, which never called it."""
    groups = [Group("pair", (4, 5)), Group("job", tuple(range(6)))]
    steps = [step(rank, "job", 9) for rank in range(4)]
    answer = waited_for(groups, steps, seen=range(5), complete=True)
    assert (answer.roots, answer.missing, answer.certainty) == ((4,), (5,), LIKELY)


def test_unlike_calls_excuse_those_that_nobody_heard_of():
    groups = [Group("trio", (0, 1, 2)), Group("job", tuple(range(6)))]
    steps = [
        step(0, "trio", 3), step(1, "trio", 3, op="broadcast"),
        *(step(rank, "job", 3) for rank in (3, 4)),
    ]  # fmt: skip
    answer = waited_for(groups, steps, complete=True)
    assert (answer.roots, answer.missing) == ((), (2, 5))
    assert answer.different[0].calls == {"all_reduce": (0,), "broadcast": (1,)}


def test_of_two_without_evidence_it_is_open_who_is_waited_for():
    answer = waited_for(TRIPLE, [step(rank, "all", 2) for rank in range(10, 14)], complete=True)
    assert (answer.roots, answer.certainty) == ((14, 15), POSSIBLE)


ALL = Group("world", tuple(range(8)))


def at_seven(ahead: range) -> list[Step]:
    """All completed #6, and some are in #7."""
    return [step(rank, "world", 7 if rank in ahead else 6,
                 LAUNCHED if rank in ahead else COMPLETED) for rank in range(8)]  # fmt: skip


@pytest.mark.parametrize(("ahead", "roots"), [(range(3), ()), (range(1, 8), (0,))])
def test_one_look_at_a_job_in_which_few_are_ahead_shows_no_hang(ahead, roots):
    assert waited_for([ALL], at_seven(ahead), complete=True, once=True).roots == roots


def test_two_looks_that_show_the_same_name_whoever_is_behind():
    assert waited_for([ALL], at_seven(range(3)), complete=True).roots == (3, 4, 5, 6, 7)


def test_who_just_completed_something_is_not_waited_for():
    answer = waited_for([ALL], at_seven(range(1, 8)), complete=True, once=True, moving=[0])
    assert not answer.names_somebody


def test_the_two_ends_of_a_message_are_no_unlike_calls():
    steps = [step(0, "pp", 4, op="SEND"), step(1, "pp", 4, op="RECV")]
    assert waited_for([Group("pp", (0, 1))], steps).different == ()
