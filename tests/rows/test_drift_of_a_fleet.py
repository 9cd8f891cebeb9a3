"""What an audit says of fleets whose nodes differ: half upgraded, of two generations, with one node
that drifted."""

from __future__ import annotations

import json

import faulty_fleet
import judge_cases
import pytest

from unhang.act.plan.role_coverage import repairs_of_run
from unhang.judge.triage.run_judging import judge_folder

HALF = [f"gpu{number:02d}" for number in range(1, 9)]


def older_driver(sections):
    text = json.dumps(sections).replace("580.178.04", "570.211.01")
    sections.clear()
    sections.update(json.loads(text))


def larger_mtu(sections):
    for one in sections["network"]["interfaces"]:
        if one["name"] == "bond0":
            one["mtu"] = 9000


def slow_machine(sections):
    node = sections["node"]
    node["dmi"] |= {"bios_version": "1.0.1"}
    node["cpu"]["frequency"]["governors"] = ["powersave"]
    node["cpu"]["idle"] |= {"deepest_state": "C6", "deepest_latency_us": 190}


@pytest.fixture
def causes_of(tmp_path):
    """The causes above info of 16 nodes of which some have a fault."""

    def causes(faults):
        faulty_fleet.write_fleet(tmp_path / "run", faults, 16)
        found = judge_folder(tmp_path / "run", [], None, "2026-11-20", repairs=repairs_of_run)
        return [one for one in found["causes"] if one["severity"] != "info"]

    return causes


def test_a_half_upgraded_fleet_has_both_versions_and_the_line_that_chooses_one(causes_of):
    found = causes_of(dict.fromkeys(HALF, older_driver))
    (differs,) = [
        one for one in found if one["rule"] == "group-driver-differs" and "gpu09" in one["nodes"]
    ]
    assert differs["remedy"]["person"] == [
        "570.211.01 on gpu[01-08], 580.178.04 on gpu[09-16]: driver.version: 570.211.01 or"
        " driver.version: 580.178.04 in unhang_policy chooses one for all"
    ]


def test_drift_names_interface_value_and_hosts(causes_of):
    (drift,) = causes_of({"gpu04": larger_mtu, "gpu07": larger_mtu})
    assert drift["remedy"]["person"][0].startswith(
        "bond0 mtu=9000 on gpu[04,07]: set what 14 nodes have, bond0 mtu=1500"
    )


def test_power_settings_of_one_slow_node_are_one_warning_on_it(causes_of):
    (drift,) = causes_of({"gpu04": slow_machine})
    assert (drift["severity"], drift["nodes"]) == ("warning", ["gpu04"])
    assert drift["explains"] == ["cpu-idle-state-slow-to-wake"]


@pytest.mark.parametrize("more", [{}, {"policy": {"peers": "both"}}])
def test_two_generations_of_gpus_are_two_groups_before_anything_is_compared(tmp_path, more):
    nodes = [
        judge_cases.node(f"{name}{number}", faulty_fleet.healthy_sections(machine), **more)
        for name, machine in (("a", "dgx_h200"), ("b", "dgx_a100"))
        for number in range(4)
    ]
    judge_cases.write_run(tmp_path / "run", *nodes)
    judge_folder(tmp_path / "run", [], None, "2026-11-20")
    found = json.loads((tmp_path / "run" / "findings.json").read_text())["findings"]
    compared = [one for one in found if one["scope"] == "group" and one["verdict"] == "fail"]
    assert bool(compared) is bool(more)  # who names peers in the policy wants them compared


def test_a_single_node_with_other_gpus_is_still_compared(tmp_path):
    names = ["dgx_h200"] * 4 + ["dgx_a100"]
    nodes = [
        judge_cases.node(f"gpu{number}", faulty_fleet.healthy_sections(name))
        for number, name in enumerate(names)
    ]
    judge_cases.write_run(tmp_path / "run", *nodes)
    found = judge_folder(tmp_path / "run", [], None, "2026-11-20")["causes"]
    assert ["gpu4"] in [one["nodes"] for one in found if one["rule"] == "group-gpu-model-differs"]


def newer_cudnn(sections):
    sections["cuda"]["cudnn"] = [{"path": "/usr/lib/libcudnn.so.9", "version": "9.99.0"}]


def other_toolkit(sections):
    sections["cuda"]["default"] = {**(sections["cuda"]["default"] or {}), "version": "11.0.3"}


def older_firmware(sections):
    for card in sections["network"]["rdma"]:
        card["firmware"] = "28.39.1002"


def older_kernel(sections):
    sections["kernel"]["release"] = "6.8.0-31-generic"


def other_python(sections):
    sections["node"]["python"]["version"] = "3.9.2"


def older_system(sections):
    sections["node"]["os"]["pretty_name"] = "Ubuntu 20.04.6 LTS"


def other_flavour(sections):
    sections["driver"]["loaded"]["flavour"] = "proprietary"


def found_between(tmp_path, fault, tested=6, lone=None):
    """(rule, severity, hosts, found) about two nodes for tests that should equal `production`."""
    nodes = []
    for number in range(tested):
        sections = faulty_fleet.healthy_sections("dgx_h200")
        (lone if lone and not number else id)(sections)
        nodes.append(judge_cases.node(f"gpu{number}", sections, groups=["production"]))
    for number in range(2):
        sections = faulty_fleet.healthy_sections("dgx_h200")
        fault(sections)
        more = {"groups": ["tests"], "policy": {"same_as": "production"}}
        nodes.append(judge_cases.node(f"dev{number}", sections, **more))
    judge_cases.write_run(tmp_path / "run", *nodes)
    judge_folder(tmp_path / "run", [], None, "2026-11-20")
    found = json.loads((tmp_path / "run" / "findings.json").read_text())["findings"]
    return [
        (one["rule"], one["severity"], one["hosts"], one["found"])
        for one in found
        if one["scope"] == "group" and one["verdict"] != "pass"
    ]


@pytest.mark.parametrize("tested", [1, 6])
@pytest.mark.parametrize(
    ("fault", "rule", "severity", "said"),
    [
        (older_driver, "group-driver-differs", "warning", "570.211.01"),
        (older_kernel, "group-kernel-differs", "info", "6.8.0-31-generic"),
        (other_flavour, "group-driver-flavour-differs", "info", "proprietary"),
        (other_python, "group-python-differs", "info", "3.9.2"),
        (older_system, "group-os-differs", "info", "Ubuntu 20.04.6 LTS"),
        (other_toolkit, "unlike-the-others-of-its-group", "info", "11.0.3"),
        (newer_cudnn, "unlike-the-others-of-its-group", "info", "9.99.0"),
        (older_firmware, "unlike-the-others-of-its-group", "info", "28.39.1002"),
    ],
)
def test_a_group_is_compared_with_the_one_it_should_equal(
    tmp_path, fault, rule, severity, said, tested
):
    """However few nodes that has: they are right."""
    found = found_between(tmp_path, fault, tested)
    assert all(hosts == ["dev0", "dev1"] for _, _, hosts, _ in found)
    assert (rule, severity) in [one[:2] for one in found if said in one[3]]
    assert [one for one in found if one[1] == "error"] == []


def test_groups_that_are_equal_or_of_which_one_node_drifted_are_no_finding(tmp_path):
    assert found_between(tmp_path / "equal", id) == []
    found = found_between(tmp_path / "drift", id, lone=older_driver)
    assert found and all(hosts == ["gpu0"] for _, _, hosts, _ in found)
