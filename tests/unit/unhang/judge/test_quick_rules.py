"""The quick form of a rule says what judging in full says, or nothing."""

from __future__ import annotations

import copy
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from healthy_nodes import h100_infiniband

from unhang.judge.compiled_catalogue import load_catalogue
from unhang.judge.documents import InvalidNode, to_facts
from unhang.judge.node_rules import CatalogueView, NodeView, judge_rule, node_world, not_all_read, why_null
from unhang.judge.quick import quick_rule
from unhang.judge.rules import compile_rule, tables_shape

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"


@cache
def _view() -> CatalogueView:
    catalogue = load_catalogue()
    return CatalogueView(catalogue.tables, tables_shape(catalogue.tables), tuple(rule.id for rule in catalogue.rules), "2026-11-20")


@cache
def _quick_rules() -> list:
    view = _view()
    found = [(rule, quick_rule(rule, view.tables, view.tables_shape)) for rule in load_catalogue().rules]
    return [(rule, quick) for rule, quick in found if quick is not None]


@cache
def _samples() -> tuple[dict[str, Any], ...]:
    recorded = [json.loads((FIXTURES / name).read_bytes()) for name in ("h200x8/facts.json", "h200x1/node.json")]
    return (h100_infiniband(), *(one.get("facts", one) for one in recorded))


def _places(value: Any, found: list, path: tuple = ()) -> list:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found.append((value, key, path))
        _places(value[key], found, (*path, key))
    return found


def damaged(number: int) -> dict[str, Any]:
    """Sections of a recorded node with some places null, some numbers and texts another, and some nulls explained."""
    noise = random.Random(number)
    facts = copy.deepcopy(noise.choice(_samples()))
    sections = facts["sections"]
    names = [noise.choice(("gpus", "gpus", "limits", "node", "driver", "interconnect", "kernel")) for _ in range(2)]
    for name in names:
        places = [one for one in _places(sections[name], []) if "probe" not in one[2] and one[1] not in ("probe", "path")]
        for holder, key, path in noise.sample(places, min(len(places), noise.choice((1, 3, 12)))):
            _damage(noise, holder, key)
            if noise.random() < 0.3:
                rows = sections[name]["probe"].get("unread") or []
                dotted = "".join(f"[{'*' if noise.random() < 0.5 else one}]" if isinstance(one, int) else f".{one}" for one in (*path, key))
                rows.append({"field": dotted.lstrip("."), "status": noise.choice(("absent", "denied", "error")), "reason": "so"})
                sections[name]["probe"]["unread"] = rows
    return facts


def _damage(noise: random.Random, holder: Any, key: Any) -> None:
    value = holder[key]
    if isinstance(value, bool) and noise.random() < 0.6:
        holder[key] = not value
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and noise.random() < 0.6:
        holder[key] = noise.choice((0, 1, value * 2, 100, 10**7, 5_200_000))
    elif isinstance(value, str) and noise.random() < 0.4:
        holder[key] = noise.choice(("open", "hopper", "other", "NVIDIA H100 80GB HBM3", "580.10", "completed"))
    elif isinstance(value, list) and value and noise.random() < 0.6:
        holder[key] = noise.choice((value[:1], value * 2, [], value * 80))
    else:
        holder[key] = None


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
    facts = copy.deepcopy(_samples()[1])
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
