"""How severe what is on a whole machine is: scenes in which an audit alarmed too much or too
little."""

from __future__ import annotations

import json

import faulty_fleet
import gallery
import judge_cases
import pytest

from unhang.audit.rules.compiled_catalogue import load_catalogue
from unhang.audit.rules.node_rules import CatalogueView
from unhang.audit.rules.rules import tables_shape
from unhang.audit.triage.run_judging import judge_folder


def causes_of(folder, *changes, machine="dgx_h200"):
    """Rule -> cause above info of one machine of the gallery with these changes."""
    sections = faulty_fleet.healthy_sections(machine)
    for change in changes:
        change(sections)
    judge_cases.write_run(folder / "run", judge_cases.node("gpu1", sections))
    found = judge_folder(folder / "run", [], None, "2026-11-20")["causes"]
    return {one["rule"]: one for one in found if one["severity"] != "info"}


def cut_by_mig(sections):
    for gpu in sections["gpus"]["devices"]:
        gpu["mig"] = {"enabled": True, "pending": True}
    for pair in sections["interconnect"]["pairs"]:
        pair["read"] = "not_supported"


def manager_newer_on_disk(sections):
    sections["fabric_manager"]["version"] = "580.200.01"


def home_not_mounted(sections):
    sections["limits"]["not_mounted"] = ["/home"]


def without_daemons_of_jobs(sections):
    sections["node"]["slurm"]["slurmd"] = False


def persistence_off(sections):
    for gpu in sections["gpus"]["devices"]:
        gpu["persistence"] = False


def slow_to_open(sections):
    sections["gpus"]["first_handle_ms"] = 4200.0


def at_four_lanes(sections):
    sections["gpus"]["devices"][0]["pcie"]["width_now"] = 4


def lower_limits(sections):
    for gpu in sections["gpus"]["devices"]:
        gpu["power_limit_w"] = gpu["power_limit_default_w"] * 0.8


def one_gpu(sections):
    del sections["gpus"]["devices"][1:]


def test_pairs_of_gpus_that_mig_cuts_are_no_fault(tmp_path):
    assert "p2p-not-ok-over-nvlink" not in causes_of(tmp_path, cut_by_mig)


def test_a_manager_that_is_newer_on_disk_is_a_warning_below_a_failed_gpu(tmp_path):
    found = causes_of(tmp_path, manager_newer_on_disk, faulty_fleet.uncontained_error)
    assert next(iter(found)) == "gpu-needs-reset"
    assert found["fabric-manager-differs-at-next-start"]["severity"] == "warning"
    assert "fabric-manager-version-differs" not in found


@pytest.mark.parametrize(
    ("changes", "rule", "severity"),
    [
        ([home_not_mounted], "filesystem-of-jobs-not-mounted", "error"),
        ([home_not_mounted, without_daemons_of_jobs], "filesystem-not-mounted", "warning"),
    ],
)
def test_a_missing_file_system_is_an_error_where_jobs_run(tmp_path, changes, rule, severity):
    found = causes_of(tmp_path, *changes)
    assert {name: one["severity"] for name, one in found.items()} == {rule: severity}


def test_persistence_that_is_off_matters_only_where_nothing_holds_the_driver(tmp_path):
    assert "gpu-persistence-off" not in causes_of(tmp_path / "held", persistence_off)
    found = causes_of(tmp_path / "slow", persistence_off, slow_to_open)
    assert "gpu-persistence-off" in found


@pytest.mark.parametrize("change", [lower_limits, at_four_lanes])
@pytest.mark.parametrize(
    ("machine", "is_loud"), [("workstation_two_rtx_pro_6000", False), ("dgx_h200", True)]
)
def test_what_people_choose_on_workstations_is_no_fault(tmp_path, change, machine, is_loud):
    only = [one_gpu] if change is at_four_lanes and not is_loud else []
    rules = {"gpu-power-limit-below-default", "pcie-width-below-max"}
    before = rules & set(causes_of(tmp_path / "before", *only, machine=machine))
    found = rules & set(causes_of(tmp_path / "after", *only, change, machine=machine))
    assert bool(found - before) is is_loud


def another_model(sections):
    """The last GPU is a card for a screen."""
    sections["gpus"]["devices"][-1] |= {"model": "NVIDIA GeForce RTX 4090", "architecture": "ada"}


def started_by_a_script(sections):
    sections["node"]["services"] = [
        {"name": "slurmd", "state": "disabled", "running": True, "replaced": False}
    ]


def in_a_virtual_machine(sections):
    sections["node"]["virtualization"] |= {"is_vm": True, "kind": "kvm"}


def few_thread_blocks(sections):
    sections["nccl"]["settings"] = [
        {"name": "NCCL_MAX_CTAS", "value": "2", "file": "/etc/nccl.conf", "line": 1,
         "source": "nccl_conf"}
    ]  # fmt: skip


def few_channels(sections):
    few_thread_blocks(sections)
    sections["nccl"]["settings"][0] |= {"name": "NCCL_MAX_NCHANNELS", "value": "3"}


WORKSTATION = "workstation_two_rtx_pro_6000"


@pytest.mark.parametrize(
    ("machine", "changes", "rule", "severity"),
    [
        ("dgx_h200", [another_model], "gpu-models-differ", "warning"),
        (WORKSTATION, [another_model], "gpu-models-differ", None),
        ("dgx_h200", [started_by_a_script], "service-of-jobs-not-started-at-boot", "warning"),
        (
            "dgx_h200",
            [started_by_a_script, in_a_virtual_machine],
            "service-of-jobs-not-started-at-boot",
            None,
        ),
        ("dgx_h200", [few_thread_blocks], "setting-against-norm", "info"),
        ("dgx_h200", [few_channels], "setting-against-norm", "warning"),
    ],
)
def test_what_is_chosen_or_costs_little_is_no_alarm(tmp_path, machine, changes, rule, severity):
    sections = faulty_fleet.healthy_sections(machine)
    for change in changes:
        change(sections)
    judge_cases.write_run(tmp_path / "run", judge_cases.node("gpu1", sections))
    judge_folder(tmp_path / "run", [], None, "2026-11-20")
    findings = json.loads((tmp_path / "run" / "findings.json").read_text())["findings"]
    found = {one["severity"] for one in findings if (one["rule"], one["verdict"]) == (rule, "fail")}
    assert found == ({severity} if severity else set())


def test_a_comparison_that_repeats_a_nodes_own_finding_is_no_cause(tmp_path):
    folder = faulty_fleet.write_fleet(tmp_path / "run")
    causes = {one["rule"]: one for one in judge_folder(folder, [], None, "2026-11-20")["causes"]}
    assert "group-power-limits-differs" not in causes
    limits = causes["gpu-power-limit-far-below-default"]
    assert "group-power-limits-differs" in limits["explains"]
    assert "group-pcie-differs" in causes["pcie-width-below-max"]["explains"]


def test_a_comparison_stays_where_the_nodes_that_most_are_like_have_the_same_finding(tmp_path):
    def half(sections):
        for gpu in sections["gpus"]["devices"]:
            gpu["power_limit_w"] = 350.0

    every = {f"gpu{number:02d}": faulty_fleet.low_power_limit for number in range(1, 25)}
    folder = faulty_fleet.write_fleet(tmp_path / "run", every | {"gpu04": half})
    causes = judge_folder(folder, [], None, "2026-11-20")["causes"]
    assert ["gpu04"] in [
        one["nodes"] for one in causes if one["rule"] == "group-power-limits-differs"
    ]


def test_remarks_of_half_the_healthy_machines_are_the_rows_that_say_so():
    catalogue = load_catalogue([])
    view = CatalogueView(
        catalogue.tables,
        tables_shape(catalogue.tables),
        tuple(rule.id for rule in catalogue.rules),
        "2026-11-20",
    )
    machines = gallery.read_gallery()
    nodes = [rule for rule in catalogue.rules if rule.scope == "node"]
    usual = {
        rule.id
        for rule in nodes
        if 2 * sum(gallery.applies_to(rule, machines, view).values()) >= len(machines)
    }
    assert usual == {rule.id for rule in catalogue.rules if rule.row.get("usual")}
    assert usual
