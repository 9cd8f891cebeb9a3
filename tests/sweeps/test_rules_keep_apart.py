"""A fault has one rule: on a rule's examples no other rule of its kind fires, unless `also` of the rule lists it."""

from __future__ import annotations

import pytest

from unhang.audit.rules.compiled_catalogue import load_catalogue
from unhang.audit.rules.examples import catalogue_view, example_node
from unhang.audit.rules.groups import judge_fragments
from unhang.audit.rules.node_rules import judge_rule, node_world

CATALOGUE = load_catalogue()
RULES = {rule.id: rule for rule in CATALOGUE.rules}
ROOTS = {rule.id: {path[0] for path in rule.decision_reads} for rule in CATALOGUE.rules}
OTHERWISE_READ = {"run_status", "message", "host", "groups", "policy_error"}  # every rule is judged on an example with one of these
VIEW = catalogue_view(CATALOGUE.tables, tuple(RULES))


def of_kind(scope):
    return [rule for rule in CATALOGUE.rules if rule.scope == scope]


def firing_on_node(example, others):
    """Ids of the node rules that fail on a fragment. A rule that reads nothing of the fragment gives its verdict on an empty node, on which none fails."""
    world = node_world(example_node(example), VIEW)
    asked = others if set(example) & OTHERWISE_READ else [rule for rule in others if ROOTS[rule.id] & set(example)]
    return {rule.id for rule in asked if fails(rule, world)}


def fails(rule, world):
    return any(one.verdict == "fail" for one in judge_rule(rule, world))


def test_no_rule_fails_on_a_node_that_says_nothing():
    empty = node_world(example_node({}), VIEW)
    assert [rule.id for rule in of_kind("node") if fails(rule, empty)] == []


def firing_on_nodes(example, others):
    """Ids of the group or fleet rules that fail on a list of fragments."""
    return {rule.id for rule in others if judge_fragments(rule, example, VIEW) == "fail"}


@pytest.mark.parametrize("rule_id", sorted(RULES))
def test_no_other_rule_of_its_kind_fires_on_the_examples_unless_the_rule_says_so(rule_id):
    rule = RULES[rule_id]
    others = [other for other in of_kind(rule.scope) if other.id != rule_id]
    firing = firing_on_node if rule.scope == "node" else firing_on_nodes
    examples = rule.row["examples"]["match"] + rule.row["examples"]["near_miss"]
    found = set().union(*(firing(example, others) for example in examples))
    assert found - set(rule.row.get("also", ())) == set()


def test_a_rule_that_fires_by_mistake_is_seen():
    """Tests the check itself: it detects two rules that report the same about a node."""
    example = RULES["driver-545-23-08-p2p-deadlock"].row["examples"]["match"][0]
    assert firing_on_node(example, of_kind("node")) == {"driver-545-23-08-p2p-deadlock"}
    nodes = RULES["group-driver-differs"].row["examples"]["match"][0]
    assert "group-driver-differs" in firing_on_nodes(nodes, of_kind("group"))
