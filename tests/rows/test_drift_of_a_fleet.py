"""What an audit says of fleets whose nodes differ: half upgraded, of two generations, with one node
that drifted."""

from __future__ import annotations

import json

import faulty_fleet
import judge_cases
import pytest

from unhang.act.plan.role_coverage import repairs_of_run
from unhang.audit.triage.run_judging import judge_folder

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
