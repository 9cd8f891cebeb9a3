"""A rollout over a large fleet of which 1 % of the nodes die while it runs: the floor and the
limits hold, each stop is gone on from, and no node is forgotten.

`make simulate` plays 10,000 nodes (SIMULATED_NODES); 500 by default.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from types import SimpleNamespace

import pytest
from large_rollout import roll_out

from unhang.act.rollout import failure_limit, state_machine
from unhang.act.rollout.floor import Floor
from unhang.act.rollout.steps import PROOFS

NODES = int(os.environ.get("SIMULATED_NODES", "500"))
FEW = 250


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("floor", ["90%", "99%"])
def test_the_floor_and_the_limits_always_hold_and_all_nodes_are_released_in_the_end(floor):
    outcome = roll_out(NODES, 1, floor)
    sys.stdout.write(f"{outcome}\n")
    fleet, checker = outcome.fleet, outcome.checker
    assert checker.faults == []
    assert fleet.died == NODES // 100
    assert floor != "90%" or outcome.stops > 0, "no node died in the middle of its change"
    assert sum(one["released"] for one in outcome.ends) == NODES
    assert {
        node.host
        for node in fleet.nodes.values()
        if node.holder or node.drained_by or node.running != node.wants
    } == set()


def admits_beyond_the_groups(standing, wave, limits, ending=""):
    return failure_limit.admit(standing, wave, dataclasses.replace(limits, groups=()), ending)


def goes_on_behind_the_dead(standing, wave, limits, ending=""):
    admitted = failure_limit.admit(standing, wave, limits, ending)
    begin = tuple(host for host in standing.waves[wave] if host not in admitted.postponed)
    return dataclasses.replace(admitted, begin=begin, stopped=None)


def has_no_limit(*_):
    return None


def has_no_floor(service, ours, floor):
    return Floor(len(service.in_service) + len(service.out), "")


def releases_unproved(node, target, epoch, stopped=None, ending=""):
    return state_machine.next_order(
        dataclasses.replace(node, proofs=dict.fromkeys(PROOFS, node.boot_id)),
        target,
        epoch,
        stopped,
        ending,
    )


def limits_with(**wrong):
    return {
        "failure_limit": SimpleNamespace(
            **{"admit": failure_limit.admit, "why_not": failure_limit.why_not, **wrong}
        )
    }


WRONG = {
    "has no limits of groups": limits_with(admit=admits_beyond_the_groups, why_not=has_no_limit),
    "goes on behind nodes that died": limits_with(
        admit=goes_on_behind_the_dead, why_not=has_no_limit
    ),
    "has no floor": {"floor": has_no_floor},
    "releases what was not proved": {
        "rules": SimpleNamespace(**{**vars(state_machine), "next_order": releases_unproved})
    },
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_checker_finds_a_machine_that(wrong):
    floor = "100%" if wrong == "has no floor" else "90%"
    assert any(roll_out(FEW, seed, floor, **WRONG[wrong]).checker.faults for seed in range(3))
