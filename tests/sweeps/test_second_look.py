"""The objections of a second review of the catalogue: every line has an answer, and every answer
that a node can demonstrate is tested."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from changed_nodes import catalogue, documents, found_on_node, schema_faults
from public_machines import public_node
from test_drift import DRIFTS
from test_mutations import CASES as MUTATIONS

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "incidents" / "second-look.yml"
CASES = {case["line"]: case for case in yaml.safe_load(FIXTURE.read_text())["cases"]}
LINES = {
    row["line"]: row
    for row in yaml.safe_load(FIXTURE.with_name("second_look_lines.yml").read_text())["tables"][
        "second_look"
    ]["rows"]
}
RULES = {rule.id for rule in catalogue().rules}
WITHOUT_A_NODE = {
    "group-torch-nccl-differs": "its words were wrong",
    "nccl-cumem-host-in-containers": "its words were wrong",
    "packages-upgrade-changes-branch": "a claim about archives",
    "gpu-architecture-not-the-models": "a claim about cards",
    "driver-595-71-05-b300-nvlink": "a row of a table, whose models test_release_issues takes away",
    "driver-590-48-01-lockup": "a row of a table, whose lines test_release_issues takes away",
    "group-settings-differ": "a claim about ranks", "clique": "not compared",
    "70 unknowns": "a matter of reports",
    "one InfiniBand port down": "the line rdma-port-down has its node",
}  # fmt: skip
"""Lines that no node shows, and why."""


def test_every_line_names_rules_that_are_there():
    assert {key for row in LINES.values() for key in row["rules"]} <= RULES


def test_every_line_has_its_node_or_there_is_a_reason_why_not():
    assert set(LINES) == set(CASES) | set(WITHOUT_A_NODE)
    assert not set(CASES) & set(WITHOUT_A_NODE)


@pytest.mark.parametrize("line", [line for line, case in CASES.items() if "drift" not in case])
def test_what_was_missed_is_found_and_what_was_false_is_silent(line):
    case = CASES[line]
    nodes = (
        [public_node(case["machine"])]
        if "machine" in case
        else documents(MUTATIONS[case["mutation"]] if "mutation" in case else case)
    )
    assert [fault for node in nodes for fault in schema_faults(node)] == []
    findings = {rule: severity for node in nodes for rule, severity in found_on_node(node).items()}
    assert {rule: findings.get(rule) for rule in case.get("found", {})} == case.get("found", {})
    assert set(case.get("silent", ())) & set(findings) == set()
    assert set(case.get("found", ())) | set(case.get("silent", ())) >= {
        rule for rule in LINES[line]["rules"][:1] if "found" not in case
    }


@pytest.mark.parametrize("line", [line for line, case in CASES.items() if "drift" in case])
def test_drift_has_a_test_of_its_own(line):
    assert CASES[line]["drift"] in DRIFTS and CASES[line]["drift"] in LINES[line]["rules"]
