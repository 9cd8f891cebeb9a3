"""The texts of findings can be rendered from the facts of their examples: no quoted value is missing, and no template remains."""

from __future__ import annotations

import re

from unhang.rules.compiled_catalogue import load_catalogue
from unhang.rules.examples import catalogue_view, example_node
from unhang.rules.node_rules import finding_texts, judge_rule, node_world

CATALOGUE = load_catalogue()
RULES = {rule.id: rule for rule in CATALOGUE.rules if rule.scope == "node"}
VIEW = catalogue_view(CATALOGUE.tables, tuple(RULES))


def findings_of(rule, example):
    world = node_world(example_node(example), VIEW)
    failed = [one for one in judge_rule(rule, world) if one.verdict == "fail"]
    items = {}
    if rule.for_each is not None:
        items = {item.path: item for item in world.items(rule.for_each.evaluate(world)) if hasattr(item, "path")}
    return [finding_texts(rule, world, one, items) for one in failed]


def texts_of(rule):
    return [text for example in rule.row["examples"]["match"] for found in findings_of(rule, example) for text in found.values()]


def has_gap(text):
    return "could not be written" in text or "not known (" in text or "{{" in text or "None" in text.split() or text.lstrip().startswith((",", ";"))


def repeats_a_word(text):
    """8 GiB GiB: the filter of a quoted value writes the unit, and the sentence writes it again."""
    return re.search(r"(?<![\w.-])([A-Za-z]{2,}) \1(?![\w.-])", text) is not None


def test_findings_quote_facts_that_are_there():
    texts = {rule_id: texts_of(rule) for rule_id, rule in RULES.items()}
    assert [rule_id for rule_id, found in texts.items() if not found] == []
    assert [(rule_id, text) for rule_id, found in texts.items() for text in found if has_gap(text)] == []
    assert [(rule_id, text) for rule_id, found in texts.items() for text in found if repeats_a_word(text)] == []
