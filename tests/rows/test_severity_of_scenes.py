"""How severe what is on a whole machine is: scenes in which an audit alarmed too much or too
little."""

from __future__ import annotations

import json

import faulty_fleet
import gallery
import judge_cases
import pytest

from unhang.judge.rules.compiled_catalogue import load_catalogue
from unhang.judge.rules.node_rules import CatalogueView
from unhang.judge.triage.run_judging import judge_folder


def causes_of(folder, *changes, machine="dgx_h200"):
    """Rule -> cause above info of one machine of the gallery with these changes."""
    sections = faulty_fleet.healthy_sections(machine)
    for change in changes:
        change(sections)
    judge_cases.write_run(folder / "run", judge_cases.node("gpu1", sections))
    found = judge_folder(folder / "run", [], None, "2026-11-20")["causes"]
    return {one["rule"]: one for one in found if one["severity"] != "info"}


def severities_of(folder, rule, *changes, machine="dgx_h200"):
    """Of a rule's findings on one machine of the gallery with these changes."""
    causes_of(folder, *changes, machine=machine)
    findings = json.loads((folder / "run" / "findings.json").read_text())["findings"]
    return {one["severity"] for one in findings if (one["rule"], one["verdict"]) == (rule, "fail")}


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
    assert severities_of(tmp_path, rule, *changes, machine=machine) == (
        {severity} if severity else set()
    )


def application_clocks(megahertz):
    def change(sections):
        gpu = sections["gpus"]["devices"][0]
        gpu["utilization_percent"] = 100
        gpu["clocks"] |= {
            "sm_mhz": megahertz, "sm_default_mhz": 1980, "throttle_reasons": ["applications_clocks"]
        }  # fmt: skip

    return change


def log_of(*events):
    """events: (kind, subject, seconds before now)."""

    def change(sections):
        now = sections["node"]["uptime_s"]
        empty = dict.fromkeys(("code", "pci_address", "severity", "processes"))
        sections["faults"]["events"] = [
            empty | {"kind": kind, "subject": subject, "count": 10, "line": subject,
                     "first_s": now - ago - 60, "last_s": now - ago}
            for kind, subject, ago in events
        ]  # fmt: skip

    return change


def crashed_on(*days):
    def change(sections):
        sections["node"]["crashes"] = [{"path": f"/var/crash/{day}", "day": day} for day in days]

    return change


def torch_without_cuda(origin):
    def change(sections):
        sections["torch"]["environments"] = [
            {"path": "/opt/train", "origin": origin, "where": "host", "container": None,
             "python": "3.12", "torch": "2.9.1", "cuda": None, "has_cuda": False, "nccl": None,
             "cudnn": None, "packages": {}}
        ]  # fmt: skip

    return change


def kubernetes_without_runtime(system):
    def change(sections):
        node = sections["node"]
        node["os"]["id"] = system
        node["kubernetes"] |= {"kubelet": True, "gpu_operator": False}
        node["cdi"] = []
        node["containers"]["containerd"] = {
            "default_runtime": "runc", "disabled_plugins": [], "cdi": False,
            "runtimes": [{"name": "runc", "systemd_cgroup": True}],
        }  # fmt: skip

    return change


def old_nccl_and_no_limit_of_the_stack(sections):
    sections["nccl"]["libraries"] = [
        {"path": "/opt/libnccl.so.2", "version": "2.27.5", "cuda": "12.9", "build_id": None,
         "size_bytes": 1, "sha256": None, "origin": "site_packages", "where": "host",
         "container": None, "package": None, "is_loader_default": False, "mapped_by": []}
    ]  # fmt: skip
    for scope in sections["limits"]["scopes"]:
        scope["stack_soft_bytes"] = -1


HUNG, SILENT = ("hung_task", "python3", 7000), ("other", "nfs-server", 600)


@pytest.mark.parametrize(
    ("change", "rule", "severity"),
    [
        (application_clocks(1095), "gpu-clocks-locked", "error"),
        (application_clocks(1500), "gpu-clocks-locked", "warning"),
        (log_of(HUNG, SILENT), "kernel-hung-task", "error"),
        (log_of(HUNG, ("other", "nfs-server", 9000)), "kernel-hung-task", "warning"),
        (log_of(HUNG), "kernel-hung-task", "warning"),
        (
            crashed_on("2026-11-16", "2026-11-18", "2026-11-19"),
            "kernel-crashed-before",
            "error",
        ),
        (crashed_on("2026-11-18", "2026-11-19"), "kernel-crashed-before", "info"),
        (
            crashed_on("2024-11-16", "2025-11-18", "2026-11-19"),
            "kernel-crashed-before",
            "info",
        ),
        (torch_without_cuda("policy"), "torch-older-than-gpu", "error"),
        (torch_without_cuda("system"), "torch-older-than-gpu", None),
        (torch_without_cuda("mapped"), "torch-older-than-gpu", None),
        (kubernetes_without_runtime("ubuntu"), "containerd-without-nvidia-runtime", "warning"),
        (kubernetes_without_runtime("cos"), "containerd-without-nvidia-runtime", None),
    ],
)
def test_what_a_fault_costs_on_its_node_decides(tmp_path, change, rule, severity):
    assert severities_of(tmp_path, rule, change) == ({severity} if severity else set())


def test_faults_of_nccl_that_some_jobs_meet_are_remarks_on_trays(tmp_path):
    machine = next(one.name for one in gallery.read_gallery() if "gb200" in one.name)
    change = old_nccl_and_no_limit_of_the_stack
    loud = causes_of(tmp_path / "loud", change, machine=machine)
    assert not {"nccl-unlimited-stack", "nccl-release-has-fault"} & set(loud)
    quiet = severities_of(tmp_path / "quiet", "nccl-unlimited-stack", change, machine=machine)
    assert quiet == {"info"}


def names(own, servers):
    def change(sections):
        sections["nccl"]["settings"] = []
        sections["node"] |= {
            "name_addresses": own, "name_service": {"hosts": ["files", "dns"], "servers": servers}
        }  # fmt: skip

    return change


def selinux(mode, allows):
    return lambda sections: sections["node"].update(
        selinux={"mode": mode, "container_use_devices": allows}
    )


def in_clique(number):
    def change(sections):
        sections["gpus"]["model"] = "NVIDIA GB200"
        for gpu in sections["gpus"]["devices"]:
            gpu["fabric"] |= {"state": "completed", "clique": number}

    return change


def in_subnets(*shared):
    def change(sections):
        sections["network"]["shared_subnets"] = list(shared)
        for card in sections["network"]["rdma"]:
            for port in card["ports"]:
                port |= {"state": "active", "link_layer": "ethernet"}

    return change


NAMES, SELINUX, PARTITION = (
    "group-names-not-resolved", "group-selinux-differs", "group-nvlink-partition-differs"
)  # fmt: skip
SUBNETS = "group-shared-subnets-differ"
RESOLVED, ALONE, LOOPBACK = (
    names(["10.0.0.5"], ["10.0.0.53"]), names(["10.0.0.5"], []), names(["127.0.1.1"], ["10.0.0.53"])
)  # fmt: skip


@pytest.mark.parametrize(
    ("usual", "odd", "rule", "severity"),
    [
        ([RESOLVED] * 3, [ALONE], NAMES, "error"),
        ([RESOLVED] * 3, [LOOPBACK], NAMES, "error"),
        ([ALONE] * 3, [RESOLVED], NAMES, "info"),
        ([LOOPBACK] * 3, [RESOLVED], NAMES, "info"),
        ([LOOPBACK] * 3, [LOOPBACK], NAMES, None),
        ([selinux("enforcing", True)] * 3, [selinux("enforcing", False)], SELINUX, "error"),
        ([selinux("enforcing", False)] * 3, [selinux("enforcing", True)], SELINUX, "info"),
        ([selinux("enforcing", True)] * 3, [selinux("disabled", None)], SELINUX, "info"),
        ([in_clique(32766)] * 3, [in_clique(32765)], PARTITION, "error"),
        ([in_clique(32766)] * 3, [in_clique(32765)] * 2, PARTITION, "info"),
        ([in_clique(32766)] * 2, [in_clique(32765)] * 2, PARTITION, "info"),
        ([in_clique(32766)] * 3, [in_clique(32766)], PARTITION, None),
        ([in_subnets()] * 3, [in_subnets("10.3.0.0/24")], SUBNETS, "error"),
        ([in_subnets("10.0.0.0/16")] * 3, [in_subnets()], SUBNETS, "info"),
        ([in_subnets("10.0.0.0/16")] * 3, [in_subnets("10.0.0.0/16")], SUBNETS, None),
    ],
)
def test_the_direction_of_a_difference_decides(tmp_path, usual, odd, rule, severity):
    documents = []
    for number, change in enumerate([*usual, *odd]):
        sections = faulty_fleet.healthy_sections()
        change(sections)
        documents.append(judge_cases.node(f"gpu{number}", sections))
    judge_cases.write_run(tmp_path / "run", *documents)
    judge_folder(tmp_path / "run", [], None, "2026-11-20")
    findings = json.loads((tmp_path / "run" / "findings.json").read_text())["findings"]
    found = [one for one in findings if (one["rule"], one["verdict"]) == (rule, "fail")]
    assert [one["severity"] for one in found] == ([severity] if severity else [])
    if severity == "error":
        assert [one["hosts"] for one in found] == [[f"gpu{len(usual)}"]]


def test_a_comparison_that_repeats_a_nodes_own_finding_is_no_cause(tmp_path):
    folder = faulty_fleet.write_fleet(tmp_path / "run")
    causes = {one["rule"]: one for one in judge_folder(folder, [], None, "2026-11-20")["causes"]}
    limits = causes["gpu-power-limit-far-below-default"]
    assert "unlike-the-others-of-its-group" in limits["explains"]
    assert "unlike-the-others-of-its-group" in causes["pcie-width-below-max"]["explains"]


def test_a_comparison_stays_where_the_nodes_that_most_are_like_have_the_same_finding(tmp_path):
    def half(sections):
        for gpu in sections["gpus"]["devices"]:
            gpu["power_limit_w"] = 350.0

    every = {f"gpu{number:02d}": faulty_fleet.low_power_limit for number in range(1, 25)}
    folder = faulty_fleet.write_fleet(tmp_path / "run", every | {"gpu04": half})
    causes = judge_folder(folder, [], None, "2026-11-20")["causes"]
    assert ["gpu04"] in [
        one["nodes"] for one in causes if one["rule"] == "unlike-the-others-of-its-group"
    ]


def test_remarks_of_half_the_healthy_machines_are_the_rows_that_say_so():
    catalogue = load_catalogue([])
    view = CatalogueView(
        catalogue.tables,
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
