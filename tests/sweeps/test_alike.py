"""Nodes with equal configuration: cached verdicts, and those of functions over measured numbers, equal the verdicts of the full judge."""

from __future__ import annotations

import copy
import random
from functools import cache
from typing import Any

import pytest
from damaged_nodes import damaged, recorded_nodes
from judge_cases import rule

from unhang.audit.judge import node_rules
from unhang.audit.judge.compiled_catalogue import load_catalogue
from unhang.audit.judge.documents import InvalidNode, to_facts
from unhang.audit.judge.engine import Engine
from unhang.audit.judge.node_rules import CatalogueView, NodeView, judge_rule, node_world
from unhang.audit.judge.pass_code import CANNOT_TELL, passing
from unhang.audit.judge.rules import compile_rule, tables_shape

MEASURED = (0, 1, 79, 85, 100, 3000, 10**7, 5_200_000, None)
OF_A_GPU = ("utilization_percent", "temperature_c", "memory_used_mib", "power_draw_w")


@cache
def view() -> CatalogueView:
    catalogue = load_catalogue()
    return CatalogueView(catalogue.tables, tables_shape(catalogue.tables), tuple(rule.id for rule in catalogue.rules), "2026-11-20")


def at_another_look(facts: dict[str, Any], noise: random.Random) -> dict[str, Any]:
    """The same node with other measured numbers, some of them null, and maybe with names of its own."""
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
    for outcome in engine.judge(node, 0).outcomes:
        for number, verdict, count in outcome.counts:
            key = (engine.rules[number].id, verdict)
            found[key] = found.get(key, 0) + count
    return found


def in_full(rules: list[Any], node: NodeView) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    world = node_world(node, view())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_rules, "FEW_ITEMS", 1 << 40)
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
    rows = engine.judge(node, 0).listed
    return sorted(repr((engine.rules[number].id, judged.verdict, judged.evidence, judged.missing, texts, where)) for number, judged, texts, where in rows)


def test_a_healthy_node_like_one_before_is_judged_without_evaluating_a_rule_in_full():
    marks: list[str] = []
    engine = Engine([one for one in load_catalogue().rules if one.scope == "node"], view(), marks.append)
    facts = copy.deepcopy(recorded_nodes()[0])
    engine.judge(node_of(facts), 0)
    assert len(marks) > 100
    marks.clear()
    facts["sections"]["node"]["uptime_s"] += 60
    for device in facts["sections"]["gpus"]["devices"]:
        device.update(temperature_c=device["temperature_c"] + 1, power_draw_w=device["power_draw_w"] + 1)
    engine.judge(node_of(facts), 0)
    assert marks == []


@pytest.mark.parametrize(
    ("when", "change", "shown"),
    [
        ("item.power_draw_w > 5000", {}, True),
        ("item.power_draw_w > 5000", {"power_draw_w": 6000.0}, False),
        ("item.power_draw_w > 5000", {"power_draw_w": None}, None),
        ("item.power_draw_w > 5000 or item.temperature_c > 200", {"temperature_c": None}, None),
        ("item.power_draw_w + item.temperature_c > 5000", {"temperature_c": None}, None),
        ("item.uuid == ''", {"uuid": None}, None),
        ("'x' in item.clocks.throttle_reasons and item.power_draw_w > 1", {"clocks": None}, None),
        ("item.processes | map(attribute='user') | unique | list | length > 1", {"processes": None}, None),
        ("gpus.devices | selectattr('power_draw_w', '>', 5000) | list | length > 0", {}, True),
        ("gpus.devices | selectattr('power_draw_w', '>', 5000) | list | length > 0", {"power_draw_w": None}, None),
    ],
)
def test_a_function_tells_that_nothing_is_wrong_or_nothing(when, change, shown):
    facts = copy.deepcopy(recorded_nodes()[1])
    for device in facts["sections"]["gpus"]["devices"]:
        device.update(change)
    compiled = compile_rule(rule(when, id="own", for_each="gpus.devices"), view().tables)
    function = passing(compiled, view().tables, view().tables_shape)
    assert function is not None
    try:
        found = function.passes(to_facts(facts).sections)
    except CANNOT_TELL:
        found = None
    assert found is shown


@pytest.mark.parametrize("text", ["__import__('os')", "x\nimport os", "S.node", "known(1)"])
def test_a_text_of_a_rule_is_a_constant_and_never_code(text):
    compiled = compile_rule(rule(f"item.uuid == {text!r}", id="own", for_each="gpus.devices"), view().tables)
    function = passing(compiled, view().tables, view().tables_shape)
    assert function is not None
    assert text in function.passes.__globals__.values()
    assert not [name for name in function.passes.__code__.co_names if not name.isidentifier() or name in ("os", "__import__")]
    assert function.passes(to_facts(recorded_nodes()[1]).sections) is True


def of_slowdown(*temperatures: Any) -> dict[str, Any]:
    """A node whose GPUs do not report when they slow down; the first of them have these temperatures."""
    facts = copy.deepcopy(recorded_nodes()[1])
    for device, temperature in zip(facts["sections"]["gpus"]["devices"], temperatures, strict=False):
        device["temperature_c"] = temperature
    for device in facts["sections"]["gpus"]["devices"]:
        device["temperature_slowdown_c"] = None
    rows = [("slowdown_c", "absent", "this card has none"), ("c", "denied", "root may read it")]
    facts["sections"]["gpus"]["probe"]["unread"] = [{"field": f"devices[*].temperature_{name}", "status": status, "reason": why} for name, status, why in rows]
    return facts


@pytest.mark.parametrize("when", ["item.temperature_c >= item.temperature_slowdown_c - 3", "item.temperature_slowdown_c <= item.temperature_c + 3.5"])
def test_what_is_skipped_for_a_null_that_nodes_have_in_common_is_skipped_only_where_all_else_was_read(when):
    """After two nodes with equal configuration, a node whose own value is missing, or too large for a sum, is judged by itself."""
    rules = [compile_rule(rule(when, id="own", for_each="gpus.devices | selectattr('error', 'unknown')"), view().tables)]
    engine = Engine(rules, view())
    looks = [of_slowdown(), of_slowdown(31), of_slowdown(40, None), of_slowdown(2**60, -(2**53)), of_slowdown(None), of_slowdown(90.5)]
    assert not [one for one in map(node_of, looks) if one is None]
    answers = [by_engine(engine, node_of(look)) for look in looks]
    assert answers == [in_full(rules, node_of(look)) for look in looks]
    assert answers[:2] == [{("own", "skip"): 8}] * 2


def with_gids(kind: str, *gids: str) -> dict[str, Any]:
    """A node whose ports have addresses of this kind."""
    facts = copy.deepcopy(recorded_nodes()[0])
    for card in facts["sections"]["network"]["rdma"]:
        for port in card["ports"]:
            port.update(
                link_layer="infiniband" if kind == "ib" else "ethernet", gids=[{"index": place, "type": kind, "gid": gid} for place, gid in enumerate(gids)]
            )
    return facts


def test_what_is_decided_without_a_nodes_own_address_is_decided_once_and_the_rest_for_each_node():
    """On InfiniBand no rule reads the GIDs; on Ethernet they decide, and each node has its own."""
    marks: list[str] = []
    rules = [one for one in load_catalogue().rules if one.scope == "node" and ("network", "rdma", "*", "ports", "*", "gids", "*", "gid") in one.decision_reads]
    assert len(rules) > 1
    engine = Engine(rules, view(), marks.append)
    routable, link_local, zeroconf = (
        "0000:0000:0000:0000:0000:ffff:0a00:0001",
        "fe80:0000:0000:0000:0000:0000:0000:0001",
        "0000:0000:0000:0000:0000:ffff:a9fe:0001",
    )
    looks = [("ib", link_local), ("roce_v2", routable), ("roce_v2", link_local), ("roce_v2", routable), ("roce_v2", zeroconf), ("roce_v1", routable)]
    nodes = [node_of(with_gids(*one)) for one in looks]
    answers = [by_engine(engine, one) for one in nodes]
    assert answers == [in_full(rules, one) for one in nodes]
    assert answers[1] == answers[3] != answers[2]
    marks.clear()
    assert by_engine(engine, node_of(with_gids("ib", link_local.replace("1", "2")))) == answers[0]
    assert marks == []
