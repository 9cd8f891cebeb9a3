"""Verdicts that are remembered equal those of judging each rule on each node."""

from __future__ import annotations

import copy
import random
from functools import cache
from typing import Any

import pytest
from damaged_nodes import damaged, recorded_nodes
from judge_cases import rule

from unhang.core.run.documents import InvalidNode, to_facts
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.engine import Engine
from unhang.judge.rules.node_rules import CatalogueView, NodeView, judge_rule, node_world
from unhang.judge.rules.rules import compile_rule

MEASURED = (0, 1, 79, 85, 100, 3000, 10**7, 5_200_000, None)
OF_A_GPU = ("utilization_percent", "temperature_c", "memory_used_mib", "power_draw_w")


@cache
def view() -> CatalogueView:
    catalogue = load_catalogue()
    return CatalogueView(
        catalogue.tables,
        tuple(rule.id for rule in catalogue.rules),
        "2026-11-20",
    )


def at_another_look(facts: dict[str, Any], noise: random.Random) -> dict[str, Any]:
    """The same node with other measured numbers, some of them null, and maybe with names of its
    own."""
    facts = copy.deepcopy(facts)
    sections = facts["sections"]
    for device in sections["gpus"]["devices"] or ():
        if isinstance(device, dict):
            for name in noise.sample(OF_A_GPU, noise.choice((0, 1, 2))):
                device[name] = noise.choice(MEASURED)
            if noise.random() < 0.3:
                device["uuid"] = f"GPU-{noise.random()}"
            if noise.random() < 0.2 and device.get("clocks"):
                device["clocks"]["sm_mhz"] = noise.choice(MEASURED)
    if noise.random() < 0.5:
        sections["node"]["uptime_s"] = noise.choice(MEASURED)
    for name in ("memory_available_bytes", "swap_free_bytes"):
        if noise.random() < 0.3:
            sections["limits"][name] = noise.choice(MEASURED)
    return facts


def by_engine(engine: Engine, node: NodeView) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for outcome in engine.judge(node).answers:
        for number, verdict, count in outcome.counts:
            key = (engine.rules[number].id, verdict)
            found[key] = found.get(key, 0) + count
    return found


def in_full(rules: list[Any], node: NodeView) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    world = node_world(node, view())
    for one in rules:
        for judged in judge_rule(one, world) if one.scope == "node" else ():
            found[one.id, judged.verdict] = found.get((one.id, judged.verdict), 0) + judged.items
    return found


def node_of(facts: dict[str, Any]) -> NodeView | None:
    try:
        return NodeView("a", (), {}, "ok", "", "", to_facts(facts).sections)
    except InvalidNode:
        return None


def test_what_is_known_of_a_signature_holds_for_whatever_is_measured():
    rules = [one for one in load_catalogue().rules if one.scope == "node"]
    engine, compared = Engine(rules, view()), 0
    for number in range(36):
        noise, facts = random.Random(number), damaged(number)
        for look in (facts, *(at_another_look(facts, noise) for _ in range(5))):
            if (node := node_of(look)) is not None:
                assert by_engine(engine, node) == in_full(rules, node), f"node {number}"
                compared += 1
    assert compared > 60


def test_findings_have_the_words_and_the_place_that_a_first_look_gives():
    rules = [one for one in load_catalogue().rules if one.scope == "node"]
    engine = Engine(rules, view())
    for number in range(8):
        noise, facts = random.Random(number), damaged(number)
        for look in (facts, *(at_another_look(facts, noise) for _ in range(3))):
            if (node := node_of(look)) is not None:
                fresh = Engine(rules, view())
                assert listed(engine, node) == listed(fresh, node), f"node {number}"


def listed(engine: Engine, node: NodeView) -> list[str]:
    rows = engine.judge(node).listed
    return sorted(
        repr(
            (engine.rules[number].id, judged.verdict, judged.evidence, judged.missing, texts, where)
        )
        for number, judged, texts, where in rows
    )


def of_slowdown(*temperatures: Any) -> dict[str, Any]:
    """A node whose GPUs do not report when they slow down; the first of them have these
    temperatures."""
    facts = copy.deepcopy(recorded_nodes()[1])
    for device, temperature in zip(
        facts["sections"]["gpus"]["devices"], temperatures, strict=False
    ):
        device["temperature_c"] = temperature
    for device in facts["sections"]["gpus"]["devices"]:
        device["temperature_slowdown_c"] = None
    rows = [("slowdown_c", "absent", "this card has none"), ("c", "denied", "root may read it")]
    facts["sections"]["gpus"]["probe"]["unread"] = [
        {"field": f"devices[*].temperature_{name}", "status": status, "reason": why}
        for name, status, why in rows
    ]
    return facts


@pytest.mark.parametrize(
    "when",
    [
        "item.temperature_c >= item.temperature_slowdown_c - 3",
        "item.temperature_slowdown_c <= item.temperature_c + 3.5",
    ],
)
def test_what_is_skipped_for_a_null_that_nodes_have_in_common_is_skipped_only_where_all_else_was_read(
    when,
):
    """After two nodes with equal configuration, a node whose own value is missing, or too large for
    a sum, is judged by itself."""
    rules = [
        compile_rule(
            rule(when, id="own", for_each="gpus.devices | selectattr('error', 'unknown')"),
            view().tables,
        )
    ]
    engine = Engine(rules, view())
    looks = [
        of_slowdown(),
        of_slowdown(31),
        of_slowdown(40, None),
        of_slowdown(2**60, -(2**53)),
        of_slowdown(None),
        of_slowdown(90.5),
    ]
    assert not [one for one in map(node_of, looks) if one is None]
    answers = [by_engine(engine, node_of(look)) for look in looks]
    assert answers == [in_full(rules, node_of(look)) for look in looks]
    assert answers[:2] == [{("own", "skip"): 8}] * 2
