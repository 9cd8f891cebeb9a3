"""Each kind of failure at each place of a batch: no node after the current batch is changed, and
every node ends in a named state."""

from __future__ import annotations

import pytest
from rollout_checker import check
from rollout_simulation import Journal, RandomRollout, SimulatedPlan, controller, target_of
from rollout_world import FAULTS, Node, World

from unhang.act.rollout import failure_limit
from unhang.act.rollout.steps import PUT_OFF, RELEASED, TO_COME

WAVES = (("gpu001",), ("gpu002", "gpu003", "gpu004"), ("gpu005", "gpu006"))
# The node boots with the requested versions, or another user keeps it, or what releases it is gone:
# its proof remains valid.
HARMLESS = {
    "crashes in between",
    "drained by somebody else under way",
    "scheduler gone at the end",
    "nobody is named",
}
ENDS = {
    "apply fails": "kept",
    "wrong kernel": "kept",
    "wrong driver": "kept",
    "audit fails": "kept",
    "smoke fails": "kept",
    "smoke together fails": "kept",
    "fails under load": "kept",
    "says ok and does nothing": "kept",
    "trial boot fails": "kept",
    "drain refused": "deferred",
    "scheduler gone": "deferred",
    "a job that never ends": "deferred",
    "a job that ends later": "waiting",
    "drained by somebody else": "deferred",
    "booted since the plan": "deferred",
    "boots before its apply": "deferred",
    "undrained before its apply": "deferred",
    "undrained before its reboot": "lost",
    "lock cannot be written": "deferred",
    "another run has it": "deferred",
    "scheduler gone at the end": "unfinished",
    "boots before its release": "unfinished",
    "drained by somebody else under way": "released",
    **{one: "unfinished" for one in FAULTS if "vanishes" in one and "rollback" not in one},
    **dict.fromkeys(("apply hangs", "does not boot"), "unfinished"),
}


def rolled_out(fault, host):
    """One run of the command over six nodes, one of which has the fault."""
    names = [name for wave in WAVES for name in wave]
    nodes = [Node(name, {fault} if name == host else set(), trial=True) for name in names]
    if fault.startswith("rollback"):
        next(node for node in nodes if node.host == host).faults.add("smoke fails")
    limits = failure_limit.Limits(
        0, frozenset(WAVES[0]), (failure_limit.Limit("all", frozenset(names), 6),)
    )
    case = RandomRollout(
        SimulatedPlan({node.host: target_of(node) for node in nodes}, WAVES, limits),
        World(nodes),
        Journal(),
    )
    for _ in controller(case):
        pass
    case.finished_at, case.ended = (
        len(case.world.log),
        {name: node.state for name, node in case.states().items()},
    )
    return case


def changed(case):
    return {host for what, host, _ in case.world.log if what == "change"}


@pytest.mark.slow
@pytest.mark.parametrize("host", ["gpu001", *WAVES[1]])
@pytest.mark.parametrize("fault", FAULTS)
def test_harm_stays_within_the_batch_in_flight(fault, host):
    case = rolled_out(fault, host)
    states = {name: node.state for name, node in case.states().items()}
    wave = next(number for number, hosts in enumerate(WAVES) if host in hosts)
    behind = {name for hosts in WAVES[wave + 1 :] for name in hosts}
    assert check(case, case.states()) == []
    assert states[host] == ENDS.get(fault, states[host])
    if fault in HARMLESS:
        assert set(states.values()) == {RELEASED, ENDS.get(fault, RELEASED)}
    elif ENDS.get(fault) in PUT_OFF and wave:
        assert {states[name] for name in behind} == {RELEASED}, (
            "nothing was changed on the node, so nothing failed"
        )
        assert case.states()[host].why
    else:
        assert changed(case) & behind == set()
        assert {states[name] for name in behind} == {TO_COME}
        assert case.states()[host].why
