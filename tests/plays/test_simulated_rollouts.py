"""Random rollouts with kills, faults and second controllers, under a checker of invariants; and
wrong state machines, each of which the checker finds.

`make simulate` runs 10,000 (SIMULATED_ROLLOUTS); 200 by default.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from functools import cache
from types import SimpleNamespace

import pytest
from rollout_checker import check
from rollout_simulation import random_case, simulate
from standing_rollouts import standing_of

from unhang.act.rollout import failure_limit, state_machine
from unhang.act.rollout.floor import Floor, Service, floor_left
from unhang.act.rollout.node_state import NodeState
from unhang.act.rollout.soak import soaking_before
from unhang.act.rollout.steps import (
    DONE,
    FINAL,
    MEANINGS,
    PROOFS,
    RELEASED,
    UNFINISHED,
    WAITING,
)

RUNS = int(os.environ.get("SIMULATED_ROLLOUTS", "200"))
PARTS = 8
SEEDS_FOR_A_WRONG_MACHINE = 1000


def played(seed, **wrong):
    """A finished case. wrong: functions in place of the machine's and the failure limit's."""
    case = random_case(seed)
    case.rules = SimpleNamespace(
        **{
            name: wrong.get(name, getattr(state_machine, name))
            for name in ("next_order", "judge", "refusal", "may_act")
        }
    )
    case.floor = wrong.get("floor", floor_left)
    case.soaking = wrong.get("soaking", soaking_before)
    case.failure_limit = SimpleNamespace(
        **{name: wrong.get(name, getattr(failure_limit, name)) for name in ("admit", "why_not")}
    )
    return simulate(case, seed)


@cache
def played_right(seed):
    """(faults that the checker found, final state of each node) of a rollout by the unchanged
    machine."""
    case = played(seed)
    states = case.states()
    return tuple(check(case, states)), tuple(node.state for node in states.values())


@pytest.mark.parametrize("part", range(PARTS))
def test_no_rollout_breaks_what_must_always_hold(part):
    assert {
        seed: found
        for seed in (*range(part, RUNS, PARTS), 1146, 7066)
        if (found := played_right(seed)[0])
    } == {}


def test_random_rollouts_end_in_every_way_that_there_is():
    ends = Counter(state for seed in range(240) for state in played_right(seed)[1])
    # a rollout is simulated until nobody waits
    assert set(ends) >= set(MEANINGS) - {WAITING}
    assert ends[RELEASED] > 100


def test_a_rollout_without_faults_releases_every_node():
    case = random_case(3)
    for node in case.world.nodes.values():
        node.faults, node.drained_by, node.holder, node.boot, node.jobs = (
            set(),
            None,
            None,
            1,
            ["job"],
        )
    plan = dataclasses.replace(case.plan, limits=failure_limit.Limits(), floor=0)
    case = simulate(dataclasses.replace(case, plan=plan), 3)
    assert {node.state for node in case.states().values()} <= {RELEASED, "taken over"}
    assert check(case, case.states()) == []


def order_with(node, target, epoch, stopped, **changed):
    return state_machine.next_order(dataclasses.replace(node, **changed), target, epoch, stopped)


def acts_beside_jobs(node, target, epoch, stopped=None):
    return order_with(node, target, epoch, stopped, done=node.done | {"drain", "wait"})


def boots_again_after_it_was_killed(node, target, epoch, stopped=None):
    order = state_machine.next_order(node, target, epoch, stopped)
    return (
        dataclasses.replace(order, boot_id=node.boot_id, reboots_left=9)
        if order and order.step == "reboot"
        else order
    )


def releases_what_was_not_proved(node, target, epoch, stopped=None):
    return order_with(node, target, epoch, stopped, proofs=dict.fromkeys(PROOFS, node.boot_id))


def releases_what_failed(node, target, epoch, stopped=None):
    order = state_machine.next_order(node, target, epoch, stopped)
    return dataclasses.replace(order, step="release") if order and order.step == "keep" else order


def forgets_what_it_changed(node, target, epoch, stopped=None):
    return order_with(
        node,
        target,
        epoch,
        stopped,
        **({"changed": False} if node.epoch != epoch or "save" not in node.done else {}),
    )


def begins_again_what_has_ended(node, target, epoch, stopped=None):
    return state_machine.next_order(
        NodeState(node.host) if node.state in FINAL else node, target, epoch, stopped
    )


def acts_with_the_node_undrained(node, target, epoch, stopped=None):
    return order_with(node, target, epoch, stopped, done=node.done | {"drain"})


def hears_no_failure(order, answer, target):
    status, evidence = state_machine.judge(order, answer, target)
    return (
        (DONE, evidence)
        if order.step in PROOFS and evidence.get("healthy") is False
        else (status, evidence)
    )


def believes_that_it_is_back(order, answer, target):
    status, evidence = state_machine.judge(order, answer, target)
    return (
        (DONE, evidence)
        if order.step == "audit_back" and evidence.get("healthy") is False
        else (status, evidence)
    )


def as_if_answered(standing):
    answered = {
        host: dataclasses.replace(node, state=RELEASED) if node.state == UNFINISHED else node
        for host, node in standing.nodes.items()
    }
    return standing_of(standing.waves, answered)


def counts_no_silence(standing, wave, limits):
    return failure_limit.admit(as_if_answered(standing), wave, limits)


def has_no_canaries(standing, wave, limits):
    return failure_limit.admit(standing, wave, dataclasses.replace(limits, canaries=frozenset()))


def never_stops(standing, wave, limits):
    admitted = failure_limit.admit(standing, wave, limits)
    begin = tuple(host for host in standing.waves[wave] if standing.node(host).state not in FINAL)
    return dataclasses.replace(admitted, begin=begin, stopped=None)


def takes_any_number_out(standing, wave, limits):
    return failure_limit.admit(standing, wave, dataclasses.replace(limits, groups=()))


def begins_whoever_is_there(standing, wave, limits):
    return dataclasses.replace(
        failure_limit.admit(standing, wave, limits), begin=tuple(standing.waves[wave])
    )


def counts_the_drained_as_in_service(service, ours, floor):
    return floor_left(Service(service.in_service | service.out.keys()), ours, floor)


def counts_its_own_drains_as_in_service(service, ours, floor):
    return Floor(floor_left(service, frozenset(), floor).most + len(ours), "")


def takes_a_dead_controllers_word_for_a_drain(service, ours, floor):
    left = floor_left(Service(service.in_service - ours, service.out), ours, floor)
    return Floor(left.most, left.why)


def asks_for_the_floor_at_no_time(service, ours, floor):
    return Floor(len(service.in_service) + len(service.out), "")


def admits_others_before_a_canary_that_was_put_off(standing, wave, limits):
    admitted = failure_limit.admit(standing, wave, limits)
    if admitted.stopped and "put off" in admitted.stopped:
        return failure_limit.admit(
            standing, wave, dataclasses.replace(limits, canaries=frozenset())
        )
    return admitted


def asks_before_the_waves_alone(standing, plan, soak_s, wave):
    return None if wave == len(plan.waves) else soaking_before(standing, plan, soak_s, wave)


def says_nothing(*_):
    return None


WRONG = {
    "acts beside jobs": {"next_order": acts_beside_jobs},
    "acts with the node undrained": {"next_order": acts_with_the_node_undrained},
    "boots again after it was killed": {
        "next_order": boots_again_after_it_was_killed,
        "may_act": says_nothing,
    },
    "releases what was not proved": {"next_order": releases_what_was_not_proved},
    "releases what failed": {"next_order": releases_what_failed},
    "forgets what it changed": {"next_order": forgets_what_it_changed},
    "begins again what has ended": {
        "next_order": begins_again_what_has_ended,
        "admit": begins_whoever_is_there,
    },
    "hears no failure": {"judge": hears_no_failure},
    "believes that it is back": {"judge": believes_that_it_is_back},
    "counts no silence": {"admit": counts_no_silence, "why_not": says_nothing},
    "has no canaries": {"admit": has_no_canaries, "why_not": says_nothing},
    "never stops": {"admit": never_stops, "why_not": says_nothing},
    "counts nodes that others drained as in service": {"floor": counts_the_drained_as_in_service},
    "counts its own drains as in service": {"floor": counts_its_own_drains_as_in_service},
    "takes a dead controller's word for a drain": {
        "floor": takes_a_dead_controllers_word_for_a_drain
    },
    "has no floor": {"floor": asks_for_the_floor_at_no_time},
    "begins behind a canary that was put off": {
        "admit": admits_others_before_a_canary_that_was_put_off,
        "why_not": says_nothing,
    },
    "asks no released node again": {"soaking": says_nothing},
    "asks no released node at the end": {"soaking": asks_before_the_waves_alone},
    "takes any number out of service": {"admit": takes_any_number_out, "why_not": says_nothing},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_checker_catches_a_machine_that(wrong):
    caught = next(
        (
            seed
            for seed in range(SEEDS_FOR_A_WRONG_MACHINE)
            if check(case := played(seed, **WRONG[wrong]), case.states())
        ),
        None,
    )
    assert caught is not None
