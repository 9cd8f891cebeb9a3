"""A rule may take the severity of each finding from a table: never from a node, and never another
word than the four."""

from __future__ import annotations

import pytest

from unhang.audit.rules.compiled_catalogue import load_catalogue
from unhang.audit.rules.examples import catalogue_view, example_node
from unhang.audit.rules.node_rules import judge_rule, node_world
from unhang.audit.rules.rules import RuleError, compile_rule

CATALOGUE = load_catalogue()
ROW = {
    "id": "own", "title": "Own", "scope": "node", "for_each": "tables.kernel_issues | values",
    "when": "item.build in kernel.release",
    "severity": "item.severity", "expected": "x", "found": "y", "remedy": {"person": "look"},
    "sources": [], "confidence": "reported",
}  # fmt: skip


def compiled(**change):
    return compile_rule({**ROW, **change}, CATALOGUE.tables)


def test_a_rule_counts_as_the_most_severe_of_its_rows():
    assert compiled().severity == "error"
    assert compiled(severity="info").severity_of is None


@pytest.mark.parametrize(
    "change",
    [
        {"severity": "eror"},
        {"severity": "item.id"},
        {"severity": "kernel.release"},
        {"severity": "faults.events[0].severity"},
        {"for_each": "faults.events", "when": "item.count > 0"},
        {"for_each": "unlike", "when": "item.others > 0", "severity": "item.value"},
        {"severity": "'error' if item.build == 'x' else item.severity"},
    ],
)
def test_what_is_no_column_of_severities_in_a_table_is_refused(change):
    with pytest.raises(RuleError) as refused:
        compiled(**change)
    assert refused.value.field == "severity"


def test_each_finding_has_the_severity_of_its_own_row():
    rule = next(one for one in CATALOGUE.rules if one.id == "kernel-message-of-fault")
    events = [
        {"kind": "other", "subject": name, "count": 1, "line": "x", "pci_address": None}
        for name in ("neighbour-table", "nfs-server", "memory-corrected")
    ]
    node = example_node({"faults": {"events": events}})
    judged = judge_rule(rule, node_world(node, catalogue_view(CATALOGUE.tables)))
    assert [one.severity for one in judged if one.verdict == "fail"] == ["error", "warning", "info"]
