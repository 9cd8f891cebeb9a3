"""The checks of public health checkers: each fault is found on a healthy node to which it is added,
and the page's totals are those of the list."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from changed_nodes import PLATFORMS, documents, found, schema_faults

from unhang.core.strict_yaml import load_yaml
from unhang_node.facts.parse.fault_lines import parse_fault

TESTS = Path(__file__).resolve().parents[1]
CHECKS = {
    row["check"]: row
    for row in load_yaml(TESTS / "fixtures" / "incidents" / "public_checks.yml")[0]["checks"]
}
FOUND = sorted(name for name, row in CHECKS.items() if row["now"] == "found")
PAGE = (TESTS.parent / "docs" / "catalogue.md").read_text(encoding="utf-8")
ROWS = {
    "found by a rule about it": "found", "by a general rule alone, or too quietly": "half",
    "the fact is there, no rule uses it": "no rule",
    "the line of the kernel log is not read": "line not read", "no fact": "no fact",
}  # fmt: skip


def event_of(line, count):
    """One event of section faults, as the collector makes it of a line of the kernel log."""
    fault = parse_fault(line)
    return {
        "kind": fault.kind, "code": fault.code, "pci_address": fault.pci_address,
        "subject": fault.subject, "severity": fault.severity, "count": count,
        "first_s": 1000.0, "last_s": 400000.0, "line": line,
    }  # fmt: skip


def without(node, service):
    """Services of a healthy node, one of them enabled and not running."""
    rows = [
        row for row in PLATFORMS[node]()["sections"]["node"]["services"] if row["name"] != service
    ]
    return [*rows, {"name": service, "state": "enabled", "running": False, "replaced": False}]


def case_of(row):
    """A row's case as changed_nodes takes it."""
    case = row["case"]
    change = {key: case[key] for key in ("facts", "settings") if key in case}
    if "log" in case:
        change["add"] = {"faults.events": [event_of(case["log"], case["count"])]}
    if "service_down" in case:
        change["facts"] = {"node.services": without(case["node"], case["service_down"])}
    changes = [{}, {}, {}, {"facts": case["group"]}] if "group" in case else [change]
    return {"node": case["node"], "changes": changes}


@pytest.mark.parametrize("name", FOUND)
def test_what_a_checker_looks_for_is_found_by_the_rules_about_it(name):
    case = case_of(CHECKS[name])
    assert [fault for document in documents(case) for fault in schema_faults(document)] == []
    assert CHECKS[name]["found_by"]
    assert set(CHECKS[name]["found_by"]) <= set(found(case))


@pytest.mark.parametrize("words", ROWS)
def test_sums_of_the_page_are_those_of_the_list(words):
    first, now = (
        Counter(row[key] for row in CHECKS.values())[ROWS[words]] for key in ("first", "now")
    )
    assert f"| {words} | {first} | {now} |" in PAGE


def test_the_page_says_how_many_checks_there_are_and_how_many_no_node_shows():
    hidden = sum(row["now"] == "hidden" for row in CHECKS.values())
    assert f"these are {len(CHECKS)}; {hidden} of them need load" in PAGE
