"""The texts of findings can be rendered from the facts of their examples: no quoted value is missing, and no template remains."""

from __future__ import annotations

import re

from unhang.audit.rules.compiled_catalogue import load_catalogue
from unhang.audit.rules.examples import catalogue_view, example_node
from unhang.audit.rules.node_rules import finding_texts, judge_rule, node_world

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


def xid(code, second, address="0000:1a:00.0", count=1):
    line = f"NVRM: Xid (PCI:{address[:-2]}): {code}, reported"
    return {"kind": "xid", "code": code, "count": count, "pci_address": address, "first_s": second, "last_s": second, "line": line}


def test_an_xid_of_a_burst_is_counted_by_itself_and_with_its_own_gpu():
    events = [xid(48, 10.0), xid(63, 11.0), xid(94, 12.0), xid(45, 13.0, "0000:2b:00.0", 4)]
    (found,) = findings_of(RULES["xid-fatal"], {"faults": {"events": events}})
    assert "x 1 on 0000:1a:00.0: " in found["found"]
    assert "(one burst of Xid 48 x 1, 63 x 1, 94 x 1, 45 x 4 within 3 s)" in found["found"]


def test_a_double_bit_error_asks_for_a_reset_where_its_row_is_replaced():
    def action(*events):
        (found,) = findings_of(RULES["xid-fatal"], {"faults": {"events": list(events)}})
        return next(text for name, text in found.items() if name.startswith("remedy"))

    assert "the memory row that Xid 63 recorded" in action(xid(48, 10.0), xid(63, 11.0))
    assert "the memory row" not in action(xid(48, 10.0), xid(63, 11.0, "0000:2b:00.0"))
    assert "the memory row" not in action(xid(48, 10.0))
    assert "the memory row" not in action(xid(48, 10.0), xid(63, 11.0), xid(95, 12.0))
    assert "the memory row" not in action(xid(48, 10.0), xid(63, 11.0), xid(48, 12.0, "0000:2b:00.0"))
