"""Items with equal values of the facts that a rule reads are judged once, and functions decide for more rules whether they apply: with the results of the
full judge."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from damaged_nodes import damaged, recorded_nodes
from judge_cases import rule
from test_alike import by_engine, in_full, node_of, view

from unhang.audit.judge import node_rules
from unhang.audit.judge.compiled_catalogue import load_catalogue
from unhang.audit.judge.engine import Engine
from unhang.audit.judge.equal_items import values_of_items
from unhang.audit.judge.node_rules import NodeView, judge_rule, node_world
from unhang.audit.judge.rules import compile_rule

LINKS = ("interconnect", "links", "*")


def told(one: Any, node: NodeView) -> tuple[list[Any], int]:
    """(the complete verdicts of a rule, the steps that remain)."""
    world = node_world(node, view())
    found = judge_rule(one, world)
    return [(each.verdict, each.item, each.evidence, each.missing, each.stopped, each.items) for each in found], world.budget[0]


def one_by_one(one: Any, node: NodeView) -> tuple[list[Any], int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_rules, "FEW_ITEMS", 1 << 40)
        return told(one, node)


def counted(facts: dict[str, Any], noise: random.Random) -> dict[str, Any]:
    """The same node, where some links and GPUs count errors, some were not read, and rows give the reason, for one item or for all."""
    facts = copy.deepcopy(facts)
    links, devices = facts["sections"]["interconnect"]["links"], facts["sections"]["gpus"]["devices"]
    for link in noise.sample(links, min(len(links), 6)):
        link["errors"] = noise.choice((None, {**(link["errors"] or {}), "replay": noise.choice((None, 0, 1, 7, 10**6))}))
        link["active"] = noise.choice((None, True, True, False))
    for device in noise.sample(devices, min(len(devices), 3)):
        device["numa_node"] = noise.choice((None, 0, 1))
        device["ecc"] = noise.choice((None, {**(device["ecc"] or {}), "pending": noise.choice((None, True, False))}))
    rows = [
        ("links[*].errors", "denied", "root may read it"),
        ("links[3].errors.replay", "absent", "this link counts none"),
        ("links[5].errors", "timeout", ""),
    ]
    facts["sections"]["interconnect"]["probe"]["unread"] = [{"field": f, "status": s, "reason": w} for f, s, w in noise.sample(rows, noise.randrange(4))]
    return facts


OF_LINKS = (
    "item.errors.replay >= policy.thresholds.nvlink_replays | default(5)", "item.errors.replay > 0 and item.errors.crc is known",
    "item.errors.replay > item.link", "item.errors.replay is unknown", "interconnect.links | map(attribute='errors.replay') | max > 6 and item.active",
)  # fmt: skip


def test_an_item_passes_like_one_before_exactly_where_it_passes_by_itself():
    """Every rule over items, and conditions over links: verdict, item, evidence, reasons, and the steps that are counted."""
    own = [compile_rule(rule(when, id=f"own-{place}", for_each="interconnect.links"), view().tables) for place, when in enumerate(OF_LINKS)]
    rules = [*own, *(one for one in load_catalogue().rules if one.scope == "node" and one.for_each is not None)]
    shared = 0
    for number in range(10):
        noise = random.Random(number)
        facts = damaged(number) if number % 2 else recorded_nodes()[number % len(recorded_nodes())]
        try:
            node = node_of(counted(facts, noise))
        except (TypeError, KeyError, AttributeError):
            continue  # a damaged node has no such lists
        for one in rules if node is not None else ():
            assert told(one, node) == one_by_one(one, node), f"node {number}, rule {one.id}"
            shared += 1
    assert shared > 3 * len(rules)


def test_equal_items_are_judged_once(monkeypatch):
    decided = []
    decide = node_rules._decide
    monkeypatch.setattr(node_rules, "_decide", lambda rule, *rest: decided.append(rule.id) or decide(rule, *rest))
    facts = copy.deepcopy(recorded_nodes()[0])
    links = facts["sections"]["interconnect"]["links"] = [
        {**recorded_nodes()[0]["sections"]["interconnect"]["links"][0], "link": number, "active": True} for number in range(20)
    ]
    for link in links:
        link["errors"] = {"replay": 0}
    links[7]["errors"] = {"replay": 2}
    one = compile_rule(rule("item.errors.replay >= 5", id="own", for_each="interconnect.links"), view().tables)
    found, steps = told(one, node_of(facts))
    assert len(decided) == 2
    assert (found, steps) == one_by_one(one, node_of(facts))
    assert [each[5] for each in found] == [20]


@pytest.mark.parametrize(
    "path",
    [("errors",), ("errors", "**"), ()],
)
def test_items_are_equal_only_by_single_values(path):
    assert values_of_items(LINKS, frozenset([(*LINKS, *path)])) is None
    assert values_of_items(LINKS, frozenset([(*LINKS, "errors", "replay")])) is not None


APPLIES = (
    ("node.uptime_s > 600", "node.time.daemon == 'chronyd' and not node.time.synchronized"),
    ("node.uptime_s > 600", "not node.time.synchronized"),
    ("node.uptime_s > 600 and node.time.synchronized is known", "node.uptime_s > 10000000 or node.time.synchronized is known and not node.time.synchronized"),
    (None, "limits.in_use.connections is known and limits.in_use.connections > limits.in_use.connections_max * 0.9"),
    (None, "limits.in_use.tasks > 900 or limits.in_use.connections is unknown and node.uptime_s > 5000000"),
)


def test_a_rule_that_applies_by_something_measured_passes_only_where_it_applies_and_its_condition_does_not_hold():
    """Engines over many readings of nodes with equal configuration, compared with judging each in full; most readings are decided without that."""
    rules = [
        compile_rule(rule(when, id=f"own-{place}", **({"applies": applies} if applies else {})), view().tables)
        for place, (applies, when) in enumerate(APPLIES)
    ]  # fmt: skip
    marks: list[str] = []
    noise, verdicts = random.Random(3), set()
    looks = 400
    for number in range(looks):
        if number % 20 == 0:  # whichever node of its kind is read first
            engine = Engine(rules, view(), marks.append)
        facts = copy.deepcopy(recorded_nodes()[0])
        node, limits = facts["sections"]["node"], facts["sections"]["limits"]
        node["uptime_s"] = noise.choice((*[7200.5] * 6, 60, 600, 601, 10**8, None))
        in_step = {"daemon": "chronyd", "synchronized": noise.choice((True, True, False, None))}
        node["time"] = noise.choice((in_step, {"daemon": None, "synchronized": True}, None))
        in_use = {"tasks": noise.choice((5, 1000, None)), "connections": noise.choice((None, 1, 95)), "connections_max": 100}
        limits["in_use"] = noise.choice((None, *[in_use] * 5))
        look = node_of(facts)
        assert look is not None
        found = by_engine(engine, look)
        assert found == in_full(rules, look), f"look {number}"
        verdicts |= set(found)
    assert {(f"own-{place}", verdict) for place in range(4) for verdict in ("pass", "fail")} <= verdicts
    assert 0 < len(marks) < looks * len(rules) / 3
