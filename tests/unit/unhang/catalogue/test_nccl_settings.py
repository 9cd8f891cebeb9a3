"""Tables of variables and profiles: complete, and one truth for the audit and the role that applies them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from unhang.judge.compiled_catalogue import load_catalogue

CATALOGUE = load_catalogue()
TABLES = CATALOGUE.tables
ROLE = yaml.safe_load((Path(__file__).resolve().parents[4] / "roles" / "nccl_profile" / "vars" / "main.yml").read_text())["__nccl_profile_profiles"]


def test_all_variables_of_nccl_and_torch_are_known():
    assert len(TABLES["nccl_variables"]) == 266
    assert len(TABLES["torch_variables"]) == 42


def test_names_that_never_existed_are_known_as_such():
    assert len(set(TABLES["not_real_settings"]) | set(TABLES["renamed_settings"])) >= 43


def test_no_variable_is_both_read_and_not_real():
    assert set(TABLES["nccl_variables"]) & (set(TABLES["not_real_settings"]) | set(TABLES["renamed_settings"])) == set()


@pytest.mark.parametrize("name", sorted(name for name, row in TABLES["nccl_variables"].items() if row.get("default", "").lstrip("-").isdigit()))
def test_default_of_a_variable_is_a_value_that_it_may_have(name):
    row = TABLES["nccl_variables"][name]
    number = int(row["default"])
    assert row["default"] in row.get("values", [row["default"]])
    assert row.get("least", number) <= number <= row.get("most", number)


def test_profiles_are_those_of_the_role():
    assert set(TABLES["nccl_profiles"]) == set(ROLE)


@pytest.mark.parametrize("name", sorted(ROLE))
def test_profile_sets_and_forbids_what_the_role_does(name):
    row, role = TABLES["nccl_profiles"][name], ROLE[name]
    assert set(row["sets"]) == set(role.get("settings", ()))
    assert set(row["forbids"]) == set(role.get("forbid", ())) - set(role.get("settings", ()))


@pytest.mark.parametrize("name", sorted(TABLES["nccl_contradictions"]))
def test_both_sides_of_a_contradiction_are_variables_that_exist(name):
    row = TABLES["nccl_contradictions"][name]
    assert {row["first"], row["second"]} <= set(TABLES["nccl_variables"]) | set(TABLES["torch_variables"])
