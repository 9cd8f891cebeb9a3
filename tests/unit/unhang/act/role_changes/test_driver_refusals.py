"""When the role gpu_driver does not touch a node: a table of nodes, with the text of each
refusal."""

from __future__ import annotations

import pytest
from case_rows import case_rows
from driver_cases import NOBODY, case

from unhang.act.role_changes.driver_plan import plan_driver

ROWS = case_rows(__file__)

REFUSED = ROWS["REFUSED"]
ALLOWED = ROWS["ALLOWED"]


@pytest.mark.parametrize(
    ("kind", "says", "node"),
    REFUSED,
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_a_node_that_must_not_be_touched_says_why(kind, says, node):
    plan = plan_driver(case(**node))
    assert kind in {row["id"] for row in plan["refusals"]}
    assert says in " ".join(row["text"] for row in plan["refusals"] if row["id"] == kind)
    for row in plan["refusals"]:
        assert row["text"].startswith("gpu001: the check found: ")
        assert all(row[part] for part in ("expected", "found", "where", "next"))
        assert "\n" not in row["text"]


@pytest.mark.parametrize("node", ALLOWED)
def test_its_neighbour_is_changed(node):
    assert plan_driver(case(**node))["refusals"] == []


@pytest.mark.parametrize(
    "node",
    [
        row[2]
        for row in REFUSED
        if row[0] in ("driver-owner", "stateless-image", "no-headers", "secure-boot", "gpus-in-use")
    ],
)
def test_what_forbids_a_change_does_not_forbid_to_leave_things_as_they_are(node):
    finished = {"driver": {"version": "550.163.01"}}
    assert plan_driver(case(**{**node, "policy": finished}))["action"] == "none"
    assert plan_driver(case(**{**node, "policy": finished}))["refusals"] == []


def test_nobody_is_nobody():
    assert NOBODY["processes"] == []
