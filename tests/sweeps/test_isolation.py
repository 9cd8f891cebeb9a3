"""The search against simulated fleets: it finds the broken nodes and links and no others, within
the promised number of rounds."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unhang.smoke.isolation import isolate


def drive(search, try_round):
    """The answer of a search."""
    try:
        groups = next(search)
        while True:
            groups = search.send(try_round(groups))
    except StopIteration as done:
        return done.value


class Fleet:
    """Nodes below switches of `switch_size`, with faults; counts rounds and checks that the groups
    of a round are disjoint."""

    def __init__(self, size, switch_size=32, nodes=(), links=(), switches=(), from_nodes=None):
        self.hosts = [f"n{number:04d}" for number in range(size)]
        self.switch = {
            host: f"switch{number // switch_size}" for number, host in enumerate(self.hosts)
        }
        self.nodes = {self.hosts[number] for number in nodes}
        self.links = {frozenset((self.hosts[a], self.hosts[b])) for a, b in links}
        self.switches, self.from_nodes, self.rounds = switches, from_nodes, 0

    def fails(self, group):
        members = set(group)
        if (
            members & self.nodes
            or any(link <= members for link in self.links)
            or (self.from_nodes and len(members) >= self.from_nodes)
        ):
            return True
        counts = {}
        for host in members:
            counts[self.switch[host]] = counts.get(self.switch[host], 0) + 1
        return any(
            counts.get(first, 0) >= least and counts.get(second, 0) >= least
            for first, second, least in self.switches
        )

    def try_round(self, groups):
        self.rounds += 1
        everybody = list(itertools.chain.from_iterable(groups))
        assert len(everybody) == len(set(everybody)), "the groups of a round share a node"
        assert all(len(group) >= 2 for group in groups)
        return [not self.fails(group) for group in groups]

    def isolate(self):
        assert self.fails(self.hosts), "a fleet without a fault is not isolated"
        answer = drive(isolate(self.hosts, self.switch), self.try_round)
        assert answer.rounds == self.rounds
        return answer


@pytest.mark.parametrize("bad", range(64))
def test_one_bad_node_of_64_is_found_within_three_rounds(bad):
    fleet = Fleet(64, nodes=[bad])
    answer = fleet.isolate()
    assert set(answer.bad_nodes) == fleet.nodes
    assert (answer.bad_links, answer.switches, answer.from_nodes, answer.unresolved) == (
        (),
        (),
        None,
        (),
    )
    assert answer.rounds <= 3


@given(st.sets(st.integers(0, 63), min_size=2, max_size=2))
@settings(max_examples=200, deadline=None)
def test_two_bad_nodes_of_64_are_found_within_four_rounds(bad):
    fleet = Fleet(64, nodes=bad)
    answer = fleet.isolate()
    assert set(answer.bad_nodes) == fleet.nodes
    assert answer.rounds <= 4


@given(st.integers(0, 63), st.integers(0, 62))
@settings(max_examples=200, deadline=None)
def test_a_bad_link_between_two_good_nodes_is_told_apart_from_a_bad_node(first, second):
    second += second >= first
    fleet = Fleet(64, links=[(first, second)])
    answer = fleet.isolate()
    assert answer.bad_nodes == ()
    assert {frozenset(link) for link in answer.bad_links} == fleet.links


@given(st.integers(5, 4096), st.data())
@settings(max_examples=120, deadline=None)
def test_bad_nodes_are_found_in_fleets_of_any_size_and_nobody_else_is_blamed(size, data):
    most = min(8, (size - 1) // 3)
    fleet = Fleet(
        size, nodes=data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=most))
    )
    answer = fleet.isolate()
    assert set(answer.bad_nodes) == fleet.nodes
    assert (answer.bad_links, answer.switches, answer.from_nodes, answer.unresolved) == (
        (),
        (),
        None,
        (),
    )
    assert answer.rounds <= 12


@given(st.integers(12, 4096), st.data())
@settings(max_examples=80, deadline=None)
def test_a_bad_node_and_a_bad_link_elsewhere_are_both_found(size, data):
    node, first, second = data.draw(
        st.lists(st.integers(0, size - 1), min_size=3, max_size=3, unique=True)
    )
    fleet = Fleet(size, nodes=[node], links=[(first, second)])
    answer = fleet.isolate()
    assert set(answer.bad_nodes) == fleet.nodes
    assert {frozenset(link) for link in answer.bad_links} == fleet.links


@given(st.integers(2, 128), st.integers(4, 32), st.integers(1, 4), st.data())
@settings(max_examples=150, deadline=None)
def test_a_fault_between_two_switches_is_named_as_such(count, switch_size, least, data):
    least = min(least, switch_size - 1)
    first, second = sorted(
        data.draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=2, unique=True))
    )
    fleet = Fleet(
        count * switch_size, switch_size, switches=[(f"switch{first}", f"switch{second}", least)]
    )
    answer = fleet.isolate()
    assert {frozenset(pair) for pair in answer.switches} == {
        frozenset((f"switch{first}", f"switch{second}"))
    }
    assert (answer.bad_nodes, answer.bad_links, answer.from_nodes) == ((), (), None)


@given(st.integers(4, 4096), st.integers(4, 64), st.data())
@settings(max_examples=150, deadline=None)
def test_a_fault_of_size_alone_is_named_with_the_number(size, switch_size, data):
    from_nodes = data.draw(st.integers(3, size))
    answer = Fleet(size, switch_size, from_nodes=from_nodes).isolate()
    assert answer.from_nodes == from_nodes
    assert (answer.bad_nodes, answer.bad_links, answer.switches, answer.unresolved) == (
        (),
        (),
        (),
        (),
    )
    assert answer.answer == f"only from {from_nodes} nodes on"


@given(st.integers(4, 4096), st.integers(4, 64), st.data())
@settings(max_examples=200, deadline=None)
def test_with_any_mixture_of_faults_it_ends_and_blames_no_node_that_is_good(
    size, switch_size, data
):
    places = st.integers(0, size - 1)
    nodes = data.draw(st.sets(places, max_size=min(4, size // 4)))
    link = data.draw(
        st.none()
        | st.lists(
            places.filter(lambda place: place not in nodes), min_size=2, max_size=2, unique=True
        )
    )
    from_nodes = data.draw(st.none() | st.integers(3, size))
    fleet = Fleet(
        size, switch_size, nodes=nodes, links=[tuple(link)] if link else (), from_nodes=from_nodes
    )
    if not fleet.fails(fleet.hosts):
        return
    answer = fleet.isolate()
    assert set(answer.bad_nodes) <= fleet.nodes
    assert {frozenset(found) for found in answer.bad_links} <= fleet.links
    assert answer.rounds <= 100


@pytest.mark.parametrize("size", [2, 3, 5, 7, 9, 65])
def test_odd_and_tiny_numbers_of_nodes_come_to_an_answer(size):
    fleet = Fleet(size, nodes=[size - 1])
    answer = fleet.isolate()
    blamed = {*answer.bad_nodes, *answer.unresolved}
    assert fleet.nodes <= blamed
    assert set(answer.bad_nodes) <= fleet.nodes
    assert size < 4 or set(answer.bad_nodes) == fleet.nodes


def test_two_nodes_that_fail_together_are_not_told_apart_and_a_reference_is_asked_for():
    answer = Fleet(2, nodes=[1]).isolate()
    assert answer.bad_nodes == ()
    assert set(answer.unresolved) == {"n0000", "n0001"}
    assert "known to be good" in answer.answer


def test_a_fault_that_does_not_come_again_blames_nobody():
    answer = drive(
        isolate([f"n{number}" for number in range(8)]), lambda groups: [True] * len(groups)
    )
    assert (answer.bad_nodes, answer.bad_links, answer.switches, answer.from_nodes) == (
        (),
        (),
        (),
        None,
    )
    assert answer.answer == "it did not happen again in parts of the group"
