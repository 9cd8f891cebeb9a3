"""Findings for other programs: each format holds what the run holds, and nothing from a node is obeyed."""

from __future__ import annotations

import csv
import io
import json
from xml.etree import ElementTree

import five_situations
import fleets
import hostile
import pytest
from foreign_schemas import junit_faults, sarif_faults

from unhang.show.report.exports import RENDERERS


@pytest.fixture
def found():
    """The fleet that has something of everything."""
    return five_situations.fleet()[0]


def test_names_are_the_nodes_that_have_a_cause(found):
    named = RENDERERS["name"](found).split()
    assert sorted(named) == sorted({host for cause in found["causes"] for host in cause["nodes"]})


def test_csv_has_a_row_for_each_finding_and_host(found):
    rows = list(csv.DictReader(io.StringIO(RENDERERS["csv"](found))))
    assert len(rows) == sum(max(1, len(one.get("hosts") or [one["host"]])) for one in found["findings"])
    assert {row["rule"] for row in rows} == {one["rule"] for one in found["findings"]}


@pytest.mark.parametrize("start", ["=1+1", "+1", "-1", "@x"])
def test_a_spreadsheet_takes_nothing_for_a_formula(start):
    text = RENDERERS["csv"](fleets.document([fleets.finding("r", "n", "error", "t", "e", start)], {"ok": 1}))
    assert next(csv.DictReader(io.StringIO(text)))["found"] == f"'{start}"


def test_each_json_line_is_a_finding_with_its_causes(found):
    rows = [json.loads(line) for line in RENDERERS["jsonl"](found).splitlines()]
    assert [row["rule"] for row in rows] == [one["rule"] for one in found["findings"]]
    assert all(row["causes"] for row in rows if row["verdict"] == "fail")


def test_markdown_has_a_row_for_each_cause(found):
    rows = RENDERERS["markdown"](found).splitlines()[4:]
    assert len(rows) == len(found["causes"])
    assert all(row.startswith("| ") and row.endswith(" |") for row in rows)


def test_junit_counts_what_it_holds_and_an_unread_node_is_an_error(found):
    assert junit_faults(RENDERERS["junit"](found)) == []
    suite = ElementTree.fromstring(RENDERERS["junit"](found))
    assert int(suite.get("tests")) == len(suite.findall("testcase")) == found["host_count"]
    assert int(suite.get("failures")) == len(suite.findall("testcase/failure"))
    assert {case.get("name") for case in suite.findall("testcase") if case.find("error") is not None} == set(found["node_verdicts"]["unread"])
    assert all(case.find("failure") is None for case in suite.findall("testcase") if case.get("name") in found["node_verdicts"]["healthy"])


def test_sarif_has_a_result_for_each_failure_and_names_its_rule(found):
    assert sarif_faults(RENDERERS["sarif"](found)) == []
    (run,) = json.loads(RENDERERS["sarif"](found))["runs"]
    failures = [one for one in found["findings"] if one["verdict"] == "fail"]
    assert [one["ruleId"] for one in run["results"]] == [one["rule"] for one in failures]
    assert {one["ruleId"] for one in run["results"]} <= {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert {one["level"] for one in run["results"]} <= {"error", "warning", "note"}


@pytest.mark.parametrize("name", RENDERERS)
@pytest.mark.parametrize("text", hostile.TEXTS.values(), ids=hostile.TEXTS.keys())
def test_no_format_hands_on_what_steers_a_terminal(name, text):
    findings = [fleets.finding("r", "n", "error", text, text, text, where={"name": text}, remedy={"person": text})]
    shown = RENDERERS[name](fleets.document(findings, {"ok": 1}))
    assert all(line.isprintable() for line in shown.split("\n"))
