"""Every list of roles has the same roles in the same order, so that a new role is missing in
none."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from unhang.act.plan.role_remedies import ROLE_ORDER

PROJECT = Path(__file__).resolve().parents[3]
ROLES = sorted(path.name for path in (PROJECT / "roles").iterdir() if (path / "tasks").is_dir())
# the frame, and what other playbooks play
ALONE = {"node_change", "drain", "smoke_test", "node_gate", "undo"}


def test_a_role_that_brings_nodes_to_their_policy_is_played_in_its_place():
    plays = yaml.safe_load((PROJECT / "playbooks" / "remediate.yml").read_text())
    (order,) = (
        play["vars"]["remediate_order"]
        for play in plays
        if "remediate_order" in play.get("vars", {})
    )
    assert sorted(order) == [role for role in ROLES if role not in ALONE]
    assert tuple(order) == ROLE_ORDER


def test_the_survey_of_awx_offers_the_same_roles():
    survey = json.loads((PROJECT / "awx" / "remediate-survey.json").read_text())
    (asked,) = (question for question in survey["spec"] if question["variable"] == "unhang_roles")
    assert tuple(asked["choices"]) == tuple(asked["default"].split("\n")) == ROLE_ORDER


def test_a_page_names_them_in_their_order():
    words = " ".join((PROJECT / "docs" / "rollout.md").read_text().split())  # it is wrapped
    assert f"{', '.join(ROLE_ORDER)}." in words


def test_the_page_of_roles_has_each():
    text = (PROJECT / "docs" / "roles.md").read_text()
    assert [
        role
        for role in ROLES
        if f"(../roles/{role}/README.md)" not in text and role != "smoke_test"
    ] == []
