"""A fault has one rule: on a rule's examples no other rule of its kind fires, unless `also` of the
rule lists it."""

from __future__ import annotations

import dataclasses

import pytest

from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.faults_among_rules import fires_too

CATALOGUE = load_catalogue()
RULES = {rule.id: rule for rule in CATALOGUE.rules}


@pytest.mark.parametrize("rule_id", sorted(RULES))
def test_no_other_rule_of_its_kind_fires_on_the_examples_unless_the_rule_says_so(rule_id):
    assert fires_too(RULES[rule_id], CATALOGUE) == set()


@pytest.mark.parametrize("rule_id", ["driver-545-23-08-p2p-deadlock", "group-driver-differs"])
def test_a_rule_that_fires_by_mistake_is_seen(rule_id):
    """Tests the check itself: a rule and its double report the same."""
    assert rule_id in fires_too(dataclasses.replace(RULES[rule_id], id="double"), CATALOGUE)
