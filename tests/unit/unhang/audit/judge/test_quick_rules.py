"""The quick form of a rule gives the result of the full judge, or none."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
from damaged_nodes import damaged, recorded_nodes

from unhang.audit.judge.compiled_catalogue import load_catalogue
from unhang.audit.judge.documents import InvalidNode, to_facts
from unhang.audit.judge.groups import compare_node
from unhang.audit.judge.node_rules import CatalogueView, NodeView, judge_rule, node_world, not_all_read, why_null
from unhang.audit.judge.own_facts import is_own
from unhang.audit.judge.pass_code import CANNOT_TELL, skipping, voting
from unhang.audit.judge.quick import quick_rule
from unhang.audit.judge.rules import compile_rule, tables_shape


@cache
def _view() -> CatalogueView:
    catalogue = load_catalogue()
    return CatalogueView(catalogue.tables, tables_shape(catalogue.tables), tuple(rule.id for rule in catalogue.rules), "2026-11-20")


@cache
def _quick_rules() -> list:
    view = _view()
    found = [(rule, quick_rule(rule, view.tables, view.tables_shape)) for rule in load_catalogue().rules]
    return [(rule, quick) for rule, quick in found if quick is not None]


def disagreements(facts: dict[str, Any]) -> tuple[list[str], int]:
    """(rules of which the two forms differ on this node, how many quick forms gave an answer)."""
    try:
        sections = to_facts(facts).sections
    except InvalidNode:
        return [], 0
    world = node_world(NodeView("a", (), {}, "ok", "", "", sections), _view())
    wrong, answered = [], 0
    for rule, quick in _quick_rules():
        answer = quick.judge(sections, lambda path: why_null(sections, path).kind)
        if answer is None:
            continue
        answered += 1
        found, with_rest = answer
        rest = not_all_read(rule, world) if with_rest else None
        if rest is not None:
            found = [*found, rest] if rule.for_each is not None else [rest]
        wanted = judge_rule(rule, world)
        if [_content(one) for one in found] != [_content(one) for one in wanted]:
            wrong.append(f"{rule.id}: {[_content(one) for one in found]} instead of {[_content(one) for one in wanted]}")
    return wrong, answered


def _content(judged: Any) -> tuple:
    return judged.verdict, judged.item, judged.evidence, judged.missing, judged.stopped, judged.items


def test_quick_form_says_what_judging_in_full_says_or_nothing():
    answers = 0
    for number in range(40):
        wrong, answered = disagreements(damaged(number))
        assert wrong == [], f"node {number}"
        answers += answered
    assert answers > 1000


def test_rules_over_measured_numbers_of_gpus_have_a_quick_form():
    quick = {rule.id for rule, _ in _quick_rules()}
    assert {"gpu-not-as-its-model-should-be", "gpu-slow-under-load", "pcie-replays", "driver-open-66-days", "admission-gpus-changed"} <= quick


@pytest.mark.parametrize(
    ("when", "change", "verdicts"),
    [
        ("item.power_draw_w > 5000", {}, ["pass"]),
        ("item.power_draw_w >= 0", {}, None),  # a fault needs evidence
        ("item.temperature_c > 500 or item.power_draw_w > 5000", {"power_draw_w": None}, None),  # not read
        ("item.power_draw_w > 5000 and item.temperature_c > 500", {"temperature_c": None}, ["pass"]),  # false and unknown is false
        ("item.power_draw_w / 0 > 5", {}, None),
        ("not item.power_draw_w < 5000", {}, ["pass"]),
    ],
)
def test_what_the_quick_form_answers(when, change, verdicts):
    facts = copy.deepcopy(recorded_nodes()[1])
    for device in facts["sections"]["gpus"]["devices"]:
        device.update(change)
    row = {
        "id": "own", "title": "own", "severity": "error", "scope": "node", "for_each": "gpus.devices", "when": when, "expected": "x", "found": "y",
        "remedy": {"person": "look"}, "sources": [], "confidence": "documented",
    }  # fmt: skip
    view = _view()
    quick = quick_rule(compile_rule(row, view.tables), view.tables, view.tables_shape)
    assert quick is not None
    sections = to_facts(facts).sections
    answer = quick.judge(sections, lambda path: why_null(sections, path).kind)
    assert (None if answer is None else [one.verdict for one in answer[0]]) == verdicts


_ADDRESSES: dict[int, Any] = {1: [], 2: None, 3: [None], 4: ["10.0.0.1/8"] * 70, 5: []}


def lived_in(number: int) -> dict[str, Any]:
    """A damaged node of which the facts that tell it from others, where they are there, are its own."""
    facts = damaged(number) if number % 2 else copy.deepcopy(recorded_nodes()[number % 3])
    node = facts["sections"].get("node")
    if isinstance(node, dict):
        node["boot_id"] = (f"boot-{number}", None, "x" * 50)[number % 3]
    interfaces = (facts["sections"].get("network") or {}).get("interfaces") or ()
    for one in interfaces:
        if isinstance(one, dict):
            one["addresses"] = _ADDRESSES.get(number % 8, ["10.0.0.2/16", f"10.0.0.{number}/16"])
            one["default_route"] = number % 4 != 0
            one["kind"], one["state"] = "physical", ("down", "up")[number % 2]
    gpus = facts["sections"].get("gpus")
    if isinstance(gpus, dict):
        gpus["count"] = (8, 1)[number % 3 == 0]
    return facts


def test_what_a_function_brings_to_a_comparison_is_what_judging_in_full_brings():
    view, found = _view(), dict[str, int]()
    rules = [rule for rule in load_catalogue().rules if rule.compare is not None and any(map(is_own, rule.decision_reads))]
    votes = [(rule, vote) for rule in rules if (vote := voting(rule, view.tables, view.tables_shape)) is not None]
    for number in range(60):
        try:
            sections = to_facts(lived_in(number)).sections
        except InvalidNode:
            continue
        world = node_world(NodeView("a", (), {}, "ok", "", "", sections), view)
        for rule, vote in votes:
            try:
                told = vote.compared(sections)
            except CANNOT_TELL:
                continue
            if not_all_read(rule, world) is None:  # own_rules.Open.decide asks no function where a list was read in part
                assert told == compare_node(rule, world), (rule.id, number)
                found[rule.id] = found.get(rule.id, 0) + 1
    assert {"group-hostname-of-two-nodes", "group-machine-id-of-two-nodes", "group-address-of-two-nodes", "group-memory-differs"} <= set(found)
    assert min(found.values()) > 5


def test_a_function_tells_that_a_rule_does_not_apply_only_where_it_does_not():
    view, told = _view(), 0
    rules = [rule for rule in load_catalogue().rules if rule.applies is not None and any(map(is_own, rule.applies.reads))]
    for number in range(60):
        try:
            sections = to_facts(lived_in(number)).sections
        except InvalidNode:
            continue
        world = node_world(NodeView("a", (), {}, "ok", "", "", sections), view)
        for rule in rules:
            skips = skipping(rule, view.tables, view.tables_shape)
            try:
                if skips is None or not skips.passes(sections):
                    continue
            except CANNOT_TELL:
                continue
            assert [one.verdict for one in judge_rule(rule, world)] == ["skip"], (rule.id, number)
            told += 1
    assert told > 10
