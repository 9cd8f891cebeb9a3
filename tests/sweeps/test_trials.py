"""Each rule above info was tried on the gallery of health: it decides there, or has nothing to look
at. `unhang explain RULE -v` says on which machines."""

from __future__ import annotations

import pytest
from changed_nodes import catalogue, view
from gallery import applies_to, read_gallery

from unhang.core.run.documents import to_fragment
from unhang.judge.rules.node_rules import NodeView, judge_rule, node_world

MACHINES = read_gallery()
ABOVE_INFO = [rule for rule in catalogue().rules if rule.severity != "info"]
OF_NODES = [rule for rule in ABOVE_INFO if rule.scope == "node"]
ALIKE = (
    "dgx_h200_in_use",
    "aws_p5en",
    "gb200_tray",
    "hgx_h100_gpu_operator",
    "desktop_two_5090",
    "rocky8_v100",
)
# of the rules that read no policy; the others look at what a healthy machine has not, such as a
# fatal line in the log
LEAST_SHARE = 0.7


@pytest.fixture(scope="module")
def verdicts():
    """{rule: its verdicts on all machines}."""
    found = {rule.id: set() for rule in OF_NODES}
    for machine in MACHINES:
        world = node_world(
            NodeView(
                machine.name,
                ("training",),
                {},
                "ok",
                "",
                "",
                to_fragment(machine.document["sections"]),
            ),
            view(),
        )
        for rule in OF_NODES:
            found[rule.id] |= {one.verdict for one in judge_rule(rule, world)}
    return found


def test_no_rule_is_left_open_on_every_machine(verdicts):
    assert [rule for rule, found in verdicts.items() if found == {"unknown"}] == []


def test_most_rules_decide_something_on_a_healthy_machine(verdicts):
    asked = [
        rule.id
        for rule in OF_NODES
        if "policy."
        not in str(rule.row.get("applies", ""))
        + str(rule.row.get("for_each", ""))
        + str(rule.row["when"])
    ]
    tried = [rule for rule in asked if verdicts[rule] & {"pass", "fail"}]
    assert len(tried) >= LEAST_SHARE * len(asked), sorted(set(asked) - set(tried))


def test_no_comparison_speaks_on_two_machines_that_are_alike():
    machines = [machine for machine in MACHINES if machine.name in ALIKE]
    comparisons = [rule for rule in ABOVE_INFO if rule.scope == "group"]
    assert len(machines) == len(ALIKE)
    assert {
        rule.id: found
        for rule in comparisons
        if any((found := applies_to(rule, machines, view())).values())
    } == {}
