"""Options on the command line: lists as text, and limits that Slurm and Ansible read
differently."""

from __future__ import annotations

import importlib.util

import pytest
from ansible.errors import AnsibleFilterError
from fakes.role_play import PROJECT

from unhang.act.rollout.limit_readings import ambiguous_ranges
from unhang.core.errors import UserError
from unhang.core.list_arguments import list_of_rows, split_commands, split_list

SEVERITIES = ("critical", "error", "warning", "info")


@pytest.mark.parametrize("given", ["critical,error", " critical , error,", ["critical", "error"]])
def test_a_list_may_be_a_text(given):
    assert split_list(given, "unhang_severities", SEVERITIES) == ["critical", "error"]


@pytest.mark.parametrize(
    "given",
    ["", ",", [], None, "errors", ["critical", "none"], [["critical"]], {"critical": True}, 3],
)
def test_what_nobody_knows_and_an_empty_list_are_refused_by_name(given):
    with pytest.raises(UserError, match=r"^unhang_severities (takes|is empty; it takes)"):
        split_list(given, "unhang_severities", SEVERITIES)


def test_a_list_that_may_be_empty_says_so():
    assert split_list("", "nccl_profile_hcas", may_be_empty=True) == []


@pytest.mark.parametrize(
    "given",
    [
        "nvidia-smi -L, /opt/check 'a b'",
        ["nvidia-smi -L", ["/opt/check", "a b"]],
        [["nvidia-smi", "-L"], ["/opt/check", "a b"]],
    ],
)
def test_commands_may_be_a_text_with_commas_between(given):
    assert split_commands(given, "kernel_checks") == [["nvidia-smi", "-L"], ["/opt/check", "a b"]]


@pytest.mark.parametrize("given", [3, [[]], [["a", 1]], ["'a"], {"a": "b"}, [None]])
def test_what_is_no_command_is_refused_by_name(given):
    with pytest.raises(UserError, match=r"^kernel_checks takes a"):
        split_commands(given, "kernel_checks")


@pytest.mark.parametrize("given", ["a,b", ["a"], {"a": "b"}, 3])
def test_a_list_of_mappings_is_never_a_text(given):
    with pytest.raises(UserError, match=r"^build_toolchain_prebuild takes a list of mappings"):
        list_of_rows(given, "build_toolchain_prebuild")


@pytest.mark.parametrize(
    "limit",
    ["gpu[001-003]", "all:gpu[001-003]", "login,gpu[001-003]", "!gpu[001-003]", "&gpu[001-003]"],
)
def test_a_range_is_refused_with_both_readings(limit):
    (line,) = ambiguous_ranges(limit)
    assert "gpu[001-003] can be read in two ways" in line


def test_a_range_in_a_file_is_found(tmp_path):
    (tmp_path / "hosts").write_text("# drained\nlogin\ngpu[001-003]\n")
    assert len(ambiguous_ranges(f"@{tmp_path}/hosts")) == 1
    assert ambiguous_ranges(f"@{tmp_path}/missing") == []


@pytest.mark.parametrize(
    "limit", ["", "gpu", "gpu[0]", "gpu[0:3]", "gpu001,gpu002", "~gpu[0-9]+", "gpu*", "!gpu001"]
)
def test_what_ansible_alone_understands_stays(limit):
    assert ambiguous_ranges(limit) == []


def plugin_filters(name):
    """A plugin's filters, loaded by path as Ansible loads them."""
    spec = importlib.util.spec_from_file_location(
        name, PROJECT / "plugins" / "filter" / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FilterModule().filters()


@pytest.mark.parametrize(
    ("severities", "outcome"),
    [("critical,error", "fail"), (["critical"], "fail"), ("warning", "pass")],
)
def test_a_critical_finding_fails_the_gate_however_the_severities_are_given(severities, outcome):
    audit = {
        "findings": [
            {
                "rule": "driver-bad",
                "verdict": "fail",
                "severity": "critical",
                "host": "gpu001",
                "title": "bad",
            }
        ]
    }
    decide = plugin_filters("unhang_gate")["unhang_gate_decisions"]
    answer = decide(
        ["gpu001"],
        {"gpu001": {"preprovision_alone": {"verdict": "pass"}}},
        audit,
        {},
        "",
        severities,
    )
    assert answer["gpu001"]["outcome"] == outcome


@pytest.mark.parametrize("severities", ["", "critcal", [], "critical error"])
def test_a_gate_whose_severities_nobody_knows_decides_nothing(severities):
    with pytest.raises(
        AnsibleFilterError, match=r"preprovision_severities .*takes some of critical"
    ):
        plugin_filters("unhang_gate")["unhang_gate_decisions"](
            ["gpu001"], {"gpu001": {}}, {}, {}, "", severities
        )
