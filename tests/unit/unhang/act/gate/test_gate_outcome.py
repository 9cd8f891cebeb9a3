"""gate.json, its exit code, and how a person and a CI system are shown it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from foreign_schemas import junit_faults

from unhang.act.gate.outcome import exit_code, gate_document
from unhang.audit.report.gate import render_gate, render_gate_junit
from unhang.core.schemas.check import check_schema

DECISIONS = {
    "gpu001": {"outcome": "pass", "reasons": []},
    "gpu002": {"outcome": "pass", "reasons": []},
    "gpu003": {
        "outcome": "fail",
        "reasons": ["audit: driver-bad: a \x1b[31mtitle", "alone: exit code 7"],
    },
    "gpu004": {"outcome": "not proved", "reasons": ["audit: node-unreachable: no route to host"]},
}


def document_of(*hosts):
    """Of these nodes."""
    return gate_document(
        "20261120T175745Z-c128066de5",
        {host: DECISIONS[host] for host in hosts},
        "gpu001",
        ["critical", "error"],
    )


@pytest.mark.parametrize(
    ("hosts", "code"),
    [
        (["gpu001", "gpu002"], 0),
        (["gpu001", "gpu004"], 3),
        (["gpu001", "gpu003", "gpu004"], 1),
        (["gpu003"], 1),
    ],
)
def test_a_failure_outweighs_what_is_not_proved(hosts, code):
    assert exit_code(document_of(*hosts)) == code


def test_the_document_is_as_its_schema_says():
    document = document_of(*DECISIONS)
    assert list(check_schema(document, "gate-1")) == []
    assert document["totals"] == {"pass": 2, "fail": 1, "not proved": 1}
    assert (
        list(
            check_schema(
                {
                    **document,
                    "nodes": [
                        {"host": "gpu001", "outcome": "unknown", "reasons": [], "differences": []}
                    ],
                },
                "gate-1",
            )
        )
        != []
    )


def test_the_table_names_each_node_once_with_its_reasons_and_those_that_fail_first():
    text = render_gate(document_of(*DECISIONS), "runs/latest", "unhang", plain=True)
    assert (
        text == " FAIL        gpu003\n"
        "             audit: driver-bad: a \\x1b[31mtitle\n"
        "             alone: exit code 7\n"
        " NOT PROVED  gpu004\n"
        "             audit: node-unreachable: no route to host\n"
        " PASS        gpu[001-002]\n"
        "\n"
        "gate       2 pass, 1 fail, 1 not proved\n"
        "reference  gpu001\n"
        "\n"
        "next: unhang report runs/latest\n"
    )


def test_junit_counts_what_is_not_proved_as_an_error_and_never_as_good():
    assert junit_faults(render_gate_junit(document_of(*DECISIONS))) == []
    suite = ElementTree.fromstring(render_gate_junit(document_of(*DECISIONS)))
    assert dict(suite.attrib) == {
        "name": "unhang preprovision",
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
    }
    shown = {case.get("name"): [child.tag for child in case] for case in suite}
    assert shown == {"gpu001": [], "gpu002": [], "gpu003": ["failure"], "gpu004": ["error"]}


def test_a_difference_that_fails_nobody_is_shown_with_both_values():
    row = {
        "rule": "unlike-the-others-of-its-group",
        "severity": "warning",
        "found": "eth0: 1500",
        "expected": ["eth0: 9000"],
        "by": "the reference gpu001 has",
    }
    document = gate_document(
        "r",
        {
            "gpu002": {
                "outcome": "pass",
                "reasons": [],
                "differences": [row, {**row, "severity": "error"}],
            }
        },
        "gpu001",
        ["error"],
    )
    assert list(check_schema(document, "gate-1")) == []
    lines = render_gate(document, "runs/latest", "unhang", plain=True).splitlines()
    assert lines[0] == " PASS        gpu002"
    assert (
        lines[1].strip()
        == 'differs, warning: unlike-the-others-of-its-group: found eth0: 1500, the reference gpu001 has ["eth0:'
        ' 9000"]'
    )
    assert lines[2] == ""
