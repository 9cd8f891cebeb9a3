"""What the texts of findings about Xids say of a burst of them."""

from __future__ import annotations

from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.example_nodes import example_node
from unhang.judge.rules.examples import catalogue_view
from unhang.judge.rules.node_rules import finding_texts, judge_rule, node_world

CATALOGUE = load_catalogue()
RULES = {rule.id: rule for rule in CATALOGUE.rules if rule.scope == "node"}
VIEW = catalogue_view(CATALOGUE.tables, tuple(RULES))


def findings_of(rule, example):
    world = node_world(example_node(example), VIEW)
    failed = [one for one in judge_rule(rule, world) if one.verdict == "fail"]
    items = {}
    if rule.for_each is not None:
        items = {
            item.path: item
            for item in world.items(rule.for_each.evaluate(world))
            if hasattr(item, "path")
        }
    return [finding_texts(rule, world, one, items) for one in failed]


def xid(code, second, address="0000:1a:00.0", count=1):
    line = f"NVRM: Xid (PCI:{address[:-2]}): {code}, reported"
    return {
        "kind": "xid",
        "code": code,
        "count": count,
        "pci_address": address,
        "first_s": second,
        "last_s": second,
        "line": line,
    }


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
    assert "the memory row" not in action(
        xid(48, 10.0), xid(63, 11.0), xid(48, 12.0, "0000:2b:00.0")
    )
