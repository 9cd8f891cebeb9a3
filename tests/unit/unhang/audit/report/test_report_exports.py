"""Findings for other programs: each format holds what the run holds, and nothing from a node is
obeyed."""

from __future__ import annotations

import csv
import io
import json
import re

import five_situations
import fleets
import hostile
import junitparser
import pytest
from foreign_schemas import junit_faults, sarif_faults

from unhang.audit.commands.fail_on import exit_code
from unhang.audit.report.exports import RENDERERS, render_junit


@pytest.fixture
def found():
    """The fleet that has something of everything."""
    return five_situations.fleet()[0]


def test_csv_has_a_row_for_each_finding_and_host(found):
    rows = list(csv.DictReader(io.StringIO(RENDERERS["csv"](found))))
    assert len(rows) == sum(
        max(1, len(one.get("hosts") or [one["host"]])) for one in found["findings"]
    )
    assert {row["rule"] for row in rows} == {one["rule"] for one in found["findings"]}


@pytest.mark.parametrize("start", ["=1+1", "+1", "-1", "@x", " =1+1", "  @x", "a; =1+1"])
def test_a_spreadsheet_takes_nothing_for_a_formula(start):
    text = RENDERERS["csv"](
        fleets.document([fleets.finding("r", "n", "error", "t", "e", start)], {"ok": 1})
    )
    assert next(csv.DictReader(io.StringIO(text)))["found"] == re.sub(
        "([=@+-])", r"'\1", start, count=1
    )


def suite_of(text):
    """The one suite, as a CI's parser reads it: {name of a test case: kind of its outcome, or
    passed}, and its counts."""
    (suite,) = junitparser.JUnitXml.fromstring(text.encode())
    cases = {
        case.name: type(case.result[0]).__name__ if case.result else "passed" for case in suite
    }
    assert all(len(case.result) <= 1 for case in suite)
    return cases, {
        "tests": suite.tests,
        "Failure": suite.failures,
        "Error": suite.errors,
        "Skipped": suite.skipped,
    }


@pytest.mark.parametrize("fail_on", ["info", "warning", "error", "critical"])
def test_a_node_is_one_test_case_which_fails_where_the_exit_code_counts_its_findings(
    found, fail_on
):
    text = render_junit(found, fail_on)
    assert junit_faults(text) == []
    cases, counts = suite_of(text)
    verdicts = found["node_verdicts"]
    severities = ["critical", "error", "warning", "info"]
    counted = severities[: severities.index(fail_on) + 1]
    assert {name for name, kind in cases.items() if kind == "Failure"} >= {
        host for one in counted for host in verdicts.get(one, ())
    }
    assert {name for name, kind in cases.items() if kind in ("Error", "Skipped")} == set(
        verdicts["unread"]
    )
    assert counts == {"tests": found["host_count"]} | {
        kind: list(cases.values()).count(kind) for kind in ("Failure", "Error", "Skipped")
    }
    assert exit_code(found, fail_on) == int(counts["Failure"] + counts["Error"] > 0)


def test_by_default_healthy_nodes_pass_and_their_remarks_are_the_output(found):
    cases, counts = suite_of(render_junit(found))
    verdicts = found["node_verdicts"]
    assert counts["Failure"] == sum(len(verdicts[one]) for one in ("critical", "error", "warning"))
    assert {name for name, kind in cases.items() if kind == "passed"} == set(verdicts["healthy"])
    remark = fleets.finding("pid-max-low", "n", "info", "a remark", "e", "f")
    (suite,) = junitparser.JUnitXml.fromstring(
        render_junit(fleets.document([remark], {"ok": 1})).encode()
    )
    assert suite.failures == 0 and any(
        "info pid-max-low: a remark" in case.system_out for case in suite if case.name == "n"
    )


def test_a_healthy_node_that_only_a_faulty_one_sets_apart_passes():
    found = fleets.compared_with_a_faulty_node()
    assert (
        found["node_verdicts"] | {"critical": ["gpu1"], "healthy": ["gpu2"]}
        == found["node_verdicts"]
    )
    cases, counts = suite_of(render_junit(found))
    assert (cases, counts["tests"], counts["Failure"]) == (
        {"gpu1": "Failure", "gpu2": "passed"},
        2,
        1,
    )


def test_sarif_has_a_result_for_each_failure_and_names_its_rule(found):
    assert sarif_faults(RENDERERS["sarif"](found)) == []
    (run,) = json.loads(RENDERERS["sarif"](found))["runs"]
    failures = [one for one in found["findings"] if one["verdict"] == "fail"]
    assert [one["ruleId"] for one in run["results"]] == [one["rule"] for one in failures]
    assert {one["ruleId"] for one in run["results"]} <= {
        rule["id"] for rule in run["tool"]["driver"]["rules"]
    }
    assert {one["level"] for one in run["results"]} <= {"error", "warning", "note"}


@pytest.mark.slow
@pytest.mark.parametrize("name", RENDERERS)
@pytest.mark.parametrize("text", hostile.TEXTS.values(), ids=hostile.TEXTS.keys())
def test_no_format_hands_on_what_steers_a_terminal(name, text):
    findings = [
        fleets.finding(
            "r", "n", "error", text, text, text, where={"name": text}, remedy={"person": text}
        )
    ]
    shown = RENDERERS[name](fleets.document(findings, {"ok": 1}))
    assert all(line.isprintable() for line in shown.split("\n"))
