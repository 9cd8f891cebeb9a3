"""Waves respect every limit, contain every node, begin with one node of each kind, and grow."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as some

from unhang.act.plan.waves import WaveLimits, plan_waves
from unhang.core.run.run_input import natural


@some.composite
def fleets(draw):
    """(host -> kind, limits) of fleets of up to 60 nodes with overlapping limited groups."""
    count = draw(some.integers(0, 60))
    kinds = {
        f"gpu{number}": draw(some.sampled_from(["h200", "h100", "a100", "l4"]))
        for number in range(count)
    }
    racks = draw(some.integers(1, 8))
    members = [
        frozenset(host for host in kinds if int(host[3:]) % racks == rack) for rack in range(racks)
    ]
    members.append(
        frozenset(draw(some.lists(some.sampled_from(sorted(kinds)), unique=True)))
        if kinds
        else frozenset()
    )
    groups = tuple((draw(some.integers(1, 5)), group) for group in members)
    return kinds, WaveLimits(draw(some.integers(1, 25)), groups)


@given(fleets())
def test_each_host_is_in_exactly_one_wave(fleet):
    kinds, limits = fleet
    placed = [host for wave in plan_waves(kinds, limits) for host in wave.hosts]
    assert sorted(placed) == sorted(kinds)


@given(fleets())
def test_no_wave_goes_beyond_a_limit(fleet):
    kinds, limits = fleet
    for wave in plan_waves(kinds, limits):
        assert 1 <= len(wave.hosts) <= limits.max_unavailable
        for limit, members in limits.groups:
            assert len(members.intersection(wave.hosts)) <= limit


@given(fleets())
def test_the_canaries_are_the_first_of_each_kind_and_come_first(fleet):
    kinds, limits = fleet
    waves = plan_waves(kinds, limits)
    canaries = [host for wave in waves if wave.is_canary for host in wave.hosts]
    assert sorted(kinds[host] for host in canaries) == sorted(set(kinds.values()))
    assert all(
        host == min((one for one in kinds if kinds[one] == kinds[host]), key=natural)
        for host in canaries
    )
    assert [wave.is_canary for wave in waves] == sorted(
        (wave.is_canary for wave in waves), reverse=True
    )


@given(fleets(), some.data())
def test_idle_hosts_come_before_busy_ones_of_their_kind_and_of_their_groups(fleet, chance):
    kinds, limits = fleet
    busy = (
        frozenset(chance.draw(some.lists(some.sampled_from(sorted(kinds)), unique=True)))
        if kinds
        else frozenset()
    )
    waves = plan_waves(kinds, dataclasses.replace(limits, busy=busy))
    canaries = {host for wave in waves if wave.is_canary for host in wave.hosts}
    assert all(
        {one for one in kinds if kinds[one] == kinds[host]} <= busy for host in canaries & busy
    )
    place = {host: number for number, wave in enumerate(waves) for host in wave.hosts}
    groups = {
        host: (
            host in canaries,
            *(number for number, (_, members) in enumerate(limits.groups) if host in members),
        )
        for host in kinds
    }
    for idle in set(kinds) - busy:
        assert all(place[idle] <= place[host] for host in busy if groups[host] == groups[idle])


@given(fleets())
def test_waves_grow_and_are_as_large_as_the_limits_allow(fleet):
    kinds, limits = fleet
    waves = plan_waves(kinds, limits)
    batches = [wave for wave in waves if not wave.is_canary]
    left = [
        set(kinds).difference(*(one.hosts for one in waves[: waves.index(wave) + 1]))
        for wave in batches
    ]
    for number, (wave, waiting) in enumerate(zip(batches, left, strict=True), 1):
        target = min(len(set(kinds.values())) * 2**number, limits.max_unavailable)
        assert len(wave.hosts) <= target
        full = [
            members
            for limit, members in limits.groups
            if len(members.intersection(wave.hosts)) == limit
        ]
        assert len(wave.hosts) == target or all(
            any(host in members for members in full) for host in waiting
        )


@given(fleets(), some.randoms(use_true_random=False))
def test_the_order_in_which_hosts_are_given_changes_nothing(fleet, chance):
    kinds, limits = fleet
    shuffled = list(kinds.items())
    chance.shuffle(shuffled)
    assert plan_waves(dict(shuffled), limits) == plan_waves(kinds, limits)


@pytest.mark.parametrize(
    ("count", "most", "sizes"),
    [(1, 5, [1]), (2, 5, [1, 1]), (30, 8, [1, 2, 4, 8, 8, 7]), (4, 1, [1, 1, 1, 1]), (0, 5, [])],
)
def test_one_kind_without_groups(count, most, sizes):
    waves = plan_waves({f"gpu{number:02d}": "h200" for number in range(count)}, WaveLimits(most))
    assert [len(wave.hosts) for wave in waves] == sizes


def test_hosts_stand_in_natural_order_and_waves_are_counted():
    waves = plan_waves({f"gpu{number}": "h200" for number in (10, 9, 2, 1)}, WaveLimits(2))
    assert [(wave.name, wave.hosts) for wave in waves] == [
        ("canary 1", ("gpu1",)),
        ("wave 1", ("gpu2", "gpu9")),
        ("wave 2", ("gpu10",)),
    ]


def test_canaries_of_several_kinds_come_one_after_the_other():
    kinds = {f"gpu{number}": f"kind {number % 3}" for number in range(5)}
    assert [(wave.name, wave.hosts) for wave in plan_waves(kinds, WaveLimits(2))] == [
        ("canary 1", ("gpu0",)),
        ("canary 2", ("gpu1",)),
        ("canary 3", ("gpu2",)),
        ("wave 1", ("gpu3", "gpu4")),
    ]


def test_a_rack_is_never_taken_as_a_whole():
    kinds = {f"gpu{number}": "h200" for number in range(8)}
    racks = tuple(
        (1, frozenset(f"gpu{number}" for number in range(8) if number // 2 == rack))
        for rack in range(4)
    )
    waves = plan_waves(kinds, WaveLimits(8, racks))
    assert [wave.hosts for wave in waves] == [
        ("gpu0",),
        ("gpu1", "gpu2"),
        ("gpu3", "gpu4", "gpu6"),
        ("gpu5", "gpu7"),
    ]
