"""A healthy node changed in one way that an expert calls a fault: nearly all are found, as loud as they deserve."""

from __future__ import annotations

from pathlib import Path

import pytest
from changed_nodes import PLATFORMS, documents, found, found_in_group, found_on_node, schema_faults

from unhang.strict_yaml import load_yaml

MUTATIONS = load_yaml(Path(__file__).resolve().parents[4] / "tests" / "fixtures" / "incidents" / "mutations.yml")[0]["nodes"]
CASES = {
    f"{node}: {row['name']}": {"node": node, "severity": row["severity"], "changes": [{key: row[key] for key in row if key not in ("name", "severity")}]}
    for node, rows in MUTATIONS.items() for row in rows
}  # fmt: skip
LOUDNESS = {"info": 0, "warning": 1, "error": 2, "critical": 3}
AIM = 0.95


def loudest(case):
    """The gravest severity among the findings that the change brought, 0 without any."""
    return max((LOUDNESS[severity] for severity in found(case).values()), default=0)


def is_right(case):
    """Found as loud as it deserves, or one step louder."""
    return loudest(case) - LOUDNESS[case["severity"]] in (0, 1)


def test_changed_nodes_are_such_as_the_collector_could_answer():
    assert {name: faults for name, case in CASES.items() if (faults := [fault for document in documents(case) for fault in schema_faults(document)])} == {}


def test_nearly_all_of_more_than_a_hundred_faults_are_found_with_the_right_severity():
    assert len(CASES) >= 115
    wrong = [name for name, case in CASES.items() if not is_right(case)]
    assert len(wrong) <= (1 - AIM) * len(CASES), wrong


@pytest.mark.parametrize("kind", PLATFORMS)
def test_healthy_node_of_every_kind_is_silent_above_info(kind):
    assert {rule: severity for rule, severity in found_on_node(PLATFORMS[kind]()).items() if severity != "info"} == {}


@pytest.mark.parametrize("kind", PLATFORMS)
def test_equal_healthy_nodes_of_every_kind_do_not_differ(kind):
    assert found_in_group([PLATFORMS[kind]() for _ in range(3)]) == {}
