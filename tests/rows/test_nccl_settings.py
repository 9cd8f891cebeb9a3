"""Tables of variables and profiles: complete, and one truth for the audit and the role that applies
them."""

from __future__ import annotations

from pathlib import Path

import pytest

from unhang.core.catalogue.setting_values import value_fault
from unhang.core.strict_yaml import load_yaml
from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.examples import catalogue_view, verdict_of

CATALOGUE = load_catalogue()
TABLES = CATALOGUE.tables
ROLE = load_yaml(
    Path(__file__).resolve().parents[2] / "roles" / "nccl_profile" / "vars" / "main.yml"
)[0]["__nccl_profile_profiles"]


def test_variables_of_nccl_and_torch_are_known():
    assert {"NCCL_ALGO", "NCCL_IB_HCA", "NCCL_P2P_DISABLE", "NCCL_SOCKET_IFNAME"} <= {
        *TABLES["nccl_variables"]
    }
    assert {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT"} <= {
        *TABLES["torch_variables"]
    }


def test_names_that_never_existed_are_known_as_such():
    assert len(set(TABLES["not_real_settings"]) | set(TABLES["renamed_settings"])) >= 43


def test_no_variable_is_both_read_and_not_real():
    assert (
        set(TABLES["nccl_variables"])
        & (set(TABLES["not_real_settings"]) | set(TABLES["renamed_settings"]))
        == set()
    )


def possible(row):
    """Whether the row's default is one of its values and within its limits."""
    number = int(row["default"])
    return row["default"] in row.get("values", [row["default"]]) and row.get(
        "least", number
    ) <= number <= row.get("most", number)


def test_the_default_of_a_variable_is_a_value_that_it_may_have():
    numbers = {
        name: row
        for name, row in TABLES["nccl_variables"].items()
        if row.get("default", "").lstrip("-").isdigit()
    }
    assert len(numbers) > 100
    assert [name for name, row in numbers.items() if not possible(row)] == []


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
    assert {row["first"], row["second"]} <= set(TABLES["nccl_variables"]) | set(
        TABLES["torch_variables"]
    )


def values_to_try(row):
    """What a variable may have, what it may not, and both written otherwise."""
    known = [str(one) for one in row.get("values", ())]
    edges = [row[name] + step for name in ("least", "most") if name in row for step in (-1, 0, 1)]
    return sorted(
        {
            *known,
            *(one.lower() for one in known),
            *map(str, edges),
            "bogus",
            *(() if "SYS" in known else ("1.5", "8M")),
            "-7",
            "3",
        }
    )  # of a level NCCL takes 8M for 8


CHECKED = ("nccl-value-not-allowed", "nccl-number-not-allowed", "nccl-number-too-large")
RULES = {rule.id: rule for rule in CATALOGUE.rules}


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name, row in TABLES["nccl_variables"].items()
        if {"values", "least", "most"} & set(row)
    ),
)
def test_the_audits_rules_and_lint_and_policy_agree_on_each_value(name):
    row, view = TABLES["nccl_variables"][name], catalogue_view(TABLES, tuple(RULES))
    for value in values_to_try(row):
        setting = {
            "name": name,
            "value": value,
            "file": "/etc/nccl.conf",
            "line": 1,
            "source": "nccl_conf",
        }
        audit = {
            verdict_of(RULES[rule], {"nccl": {"settings": [setting]}}, view) for rule in CHECKED
        }
        assert ("fail" in audit) == (value_fault(name, row, value) is not None), (
            f"{name}={value}: the audit says {audit}"
        )


ALGORITHMS = (
    "Ring",
    "ring,TREE",
    "^PAT",
    "allreduce:NVLSTree;broadcast:Ring",
    "Ring,CollNet",
    "CollnetDirect",
    "Rong",
    "allreduce:Simple",
)


@pytest.mark.parametrize("value", ALGORITHMS)
def test_rule_lint_and_policy_agree_on_each_algorithm(value):
    setting = {
        "name": "NCCL_ALGO",
        "value": value,
        "file": "/etc/nccl.conf",
        "line": 1,
        "source": "nccl_conf",
    }
    node = {"nccl": {"libraries": [{"path": "/opt/l", "version": "2.27.5"}], "settings": [setting]}}
    audit = verdict_of(RULES["nccl-algorithm-unknown"], node, catalogue_view(TABLES, tuple(RULES)))
    assert (audit == "fail") == (
        value_fault("NCCL_ALGO", TABLES["nccl_variables"]["NCCL_ALGO"], value, "2.27.5") is not None
    )


@pytest.mark.parametrize("value", ["LL", "ll128,Simple", "^LL128", "LL64", "Ring"])
def test_rule_lint_and_policy_agree_on_each_protocol(value):
    setting = {
        "name": "NCCL_PROTO",
        "value": value,
        "file": "/etc/nccl.conf",
        "line": 1,
        "source": "nccl_conf",
    }
    node = {"nccl": {"libraries": [{"path": "/opt/l", "version": "2.27.5"}], "settings": [setting]}}
    audit = verdict_of(RULES["nccl-algorithm-unknown"], node, catalogue_view(TABLES, tuple(RULES)))
    assert (audit == "fail") == (
        value_fault("NCCL_PROTO", TABLES["nccl_variables"]["NCCL_PROTO"], value, "2.27.5")
        is not None
    )


def test_a_release_before_2_24_takes_the_old_name_of_an_algorithm():
    row = TABLES["nccl_variables"]["NCCL_ALGO"]
    assert [
        value_fault("NCCL_ALGO", row, "CollNet", release) is None
        for release in ("2.10.3", "2.24.3", None)
    ] == [True, False, False]
