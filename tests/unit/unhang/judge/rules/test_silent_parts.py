"""A part that gave errors to more than half of what it was asked: no rule judges what little it did
answer, whether it iterates over the parts, counts them, or compares nodes."""

from __future__ import annotations

import pytest
from judge_cases import rule

from unhang.judge.rules.example_nodes import example_node
from unhang.judge.rules.examples import catalogue_view, judge_fragments
from unhang.judge.rules.node_rules import judge_rule, node_world
from unhang.judge.rules.rules import compile_rule
from unhang.judge.rules.unreadable import _leaves

LISTS = [  # (list, what one item of it answers, an expression that is true of this answer)
    ("gpus.devices", {"index": 1, "temperature_c": 99}, "item.temperature_c == 99"),
    ("network.interfaces", {"name": "eth1", "mtu": 99}, "item.mtu == 99"),
    ("network.rdma", {"name": "mlx5_1", "driver": "old"}, "item.driver == 'old'"),
]


def node(listed, own, silent=True, key="1"):
    section, name = listed.split(".")
    unread = [
        {"field": f"{name}[{key}].{'.'.join(leaf)}", "status": "error", "reason": "EIO"}
        for leaf in sorted(_leaves(section, name))
        if leaf[0] not in own
    ]
    probe = {"status": "ok", "unread": unread if silent else []}
    return {section: {"probe": probe, name: [own, own]}}


def verdicts(row, *given, **more):
    world = node_world(example_node(node(*given, **more)), catalogue_view())
    return [one.verdict for one in judge_rule(compile_rule(row), world)]


@pytest.mark.parametrize(("listed", "own", "when"), LISTS)
def test_the_little_that_it_answers_is_judged_by_no_rule(listed, own, when):
    each = rule(when, for_each=listed)
    name, value = when.removeprefix("item.").split(" == ")
    one = rule(f"{listed}[1].{name} == {value}")
    both = rule(f"{listed} | selectattr('{name}', '==', {value}) | list | length > 1")
    assert verdicts(each, listed, own) == ["fail", "unknown"]
    assert verdicts(one, listed, own) == verdicts(both, listed, own) == ["unknown"]
    for row in (each, one, both):
        assert set(verdicts(row, listed, own, silent=False)) == {"fail"}


def test_all_parts_that_are_silent_together_are_judged_by_no_rule():
    listed, own, when = LISTS[0]
    assert verdicts(rule(when, for_each=listed), listed, own, key="*") == ["unknown"]


@pytest.mark.parametrize("silent", [True, False])
def test_nodes_are_not_compared_by_what_such_a_part_answers(silent):
    row = rule("distinct > 1", scope="group", compare="gpus.devices[1].temperature_c")
    nodes = [
        node("gpus.devices", {"index": 1, "temperature_c": celsius}, silent and celsius == 99)
        for celsius in (30, 30, 99)
    ]
    found = judge_fragments(compile_rule(row), nodes, catalogue_view())
    assert found == ("unknown" if silent else "fail")
