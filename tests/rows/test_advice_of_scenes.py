"""Advice that can be followed: it names the variable, the option or the version, and never asks for
a boot into a kernel without driver."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import faulty_fleet
import judge_cases
import pytest
from changed_nodes import catalogue, view

from unhang.core.run.documents import to_fragment
from unhang.judge.fleet.drift_advice import _advice
from unhang.judge.rules.node_rules import NodeView, finding_texts, judge_rule, node_world
from unhang.judge.triage.run_judging import judge_folder

CATALOGUE = Path(__file__).resolve().parents[2] / "tools" / "unhang" / "judge" / "catalogue"
NEXT = "6.8.0-155-generic"


def advice_of(folder, *changes, machine="dgx_h200"):
    """Rule -> what a person does, of one machine of the gallery with these changes."""
    sections = faulty_fleet.healthy_sections(machine)
    for change in changes:
        change(sections)
    judge_cases.write_run(folder / "run", judge_cases.node("gpu1", sections))
    found = judge_folder(folder / "run", [], None, "2026-11-20")["causes"]
    return {
        one["rule"]: " ".join(one["remedy"]["person"]) for one in found if one["severity"] != "info"
    }


def small_shm_in_a_container(sections):
    sections["node"]["virtualization"] |= {"is_container": True, "kind": "docker"}
    sections["limits"]["shm"]["size_bytes"] = 64 << 20


def setting(name, value):
    def change(sections):
        sections["nccl"]["settings"] = [
            {"name": name, "value": value, "file": "/etc/environment", "line": 3,
             "source": "environment"}
        ]  # fmt: skip

    return change


def libraries_of_another_driver(sections):
    sections["driver"]["mismatch"] = True
    sections["driver"]["userspace"]["libnvidia_ml"]["version"] = "580.200.01"


def next_kernel_without_module(sections):
    kernel = sections["kernel"]
    kernel["installed"].append(
        {
            **kernel["installed"][0],
            "release": NEXT,
            "image": f"/boot/vmlinuz-{NEXT}",
            "nvidia_module": "",
        }
    )
    kernel["boot"]["default_release"] = NEXT
    kernel.update(reboot_required=True, reboot_reasons=["linux-image-" + NEXT])


def mps_left_running(sections):
    gpu = sections["gpus"]["devices"][0]
    gpu["compute_mode"] = "exclusive_process"
    gpu["processes"] = [
        {"pid": 7, "user": "root", "command": "nvidia-cuda-mps", "where": "host",
         "memory_mib": 30.0, "use": "mps"}
    ]  # fmt: skip


def test_a_small_dev_shm_of_a_container_has_the_options_of_the_container(tmp_path):
    shown = advice_of(tmp_path, small_shm_in_a_container)["container-shm-too-small"]
    assert "--shm-size=16g" in shown
    assert "--ipc=host" in shown


def test_a_mismatch_after_half_an_upgrade_names_both_versions(tmp_path):
    shown = advice_of(tmp_path, libraries_of_another_driver)["driver-library-mismatch"]
    assert "the installed driver 580.200.01 is loaded in place of 580.178.04" in shown


def test_no_advice_asks_for_a_boot_into_a_kernel_without_driver(tmp_path):
    shown = advice_of(tmp_path, next_kernel_without_module, faulty_fleet.links_down)
    assert "kernel-reboot-required" not in shown
    assert shown["nvlink-some-inactive"].startswith(
        "repair kernel-next-boot-without-driver before any boot, for the next kernel has no driver;"
    )
    assert (
        "boot"
        not in advice_of(tmp_path / "b", faulty_fleet.links_down)["nvlink-some-inactive"].partition(
            "reset its GPUs"
        )[0]
    )


def test_mps_that_was_left_running_is_named(tmp_path):
    shown = advice_of(tmp_path, mps_left_running)["gpu-compute-mode-exclusive"]
    assert shown.startswith("MPS was left running on this GPU: end it first (echo quit")


@pytest.mark.parametrize(
    ("variable", "value", "step"),
    [
        ("LD_LIBRARY_PATH", "/usr/lib:/opt/old", "take /opt/old out of LD_LIBRARY_PATH"),
        ("LD_PRELOAD", "/opt/old/libnccl.so.2", "take libnccl out of LD_PRELOAD"),
    ],
)
def test_every_rule_about_an_old_nccl_begins_with_the_variable_that_loads_it(
    tmp_path, variable, value, step
):
    sections = faulty_fleet.healthy_sections("dgx_h100_torch_on_host")
    usual = sections["nccl"]["libraries"][0]
    sections["nccl"]["libraries"] = [
        usual, {**usual, "path": "/opt/old/libnccl.so.2", "version": "2.17.1"}
    ]  # fmt: skip

    def advice():
        judge_cases.write_run(tmp_path / "run", judge_cases.node("gpu1", sections))
        judge_folder(tmp_path / "run", [], None, "2026-11-20")
        findings = json.loads((tmp_path / "run" / "findings.json").read_text())["findings"]
        shutil.rmtree(tmp_path / "run")
        about = [
            one for one in findings if one["rule"].startswith(("nccl-release-", "nccl-launch-"))
        ]
        return {str(one["remedy"].get("person")): one for one in about if one["verdict"] == "fail"}

    assert not [text for text in advice() if variable in text]
    setting(variable, value)(sections)
    sections["nccl"]["settings"] += [
        {**sections["nccl"]["settings"][0], "name": "NCCL_LAUNCH_MODE", "value": "GROUP"}
    ]
    begins = f"first {step} in /etc/environment, through which NCCL 2.17.1 is loaded"
    found = advice()
    assert {text.startswith(begins) for text, one in found.items() if "2.17.1" in one["found"]} == {
        True
    }
    assert not [text for text, one in found.items() if text.startswith(begins)
                and one["where"].get("value") == usual["version"]]  # fmt: skip


def test_no_row_sends_a_person_to_find_out_which_value_is_right():
    rows = "".join(path.read_text() for path in CATALOGUE.rglob("*.yml"))
    assert "find out which value" not in " ".join(rows.split())


def test_the_next_kernel_without_module_is_named_before_any_reboot(tmp_path):
    shown = advice_of(tmp_path, next_kernel_without_module)["kernel-next-boot-without-driver"]
    assert shown.startswith(f"before any reboot, install the headers of {NEXT} and build")
    assert "unhang_policy" not in shown


def test_a_power_brake_sends_to_the_power_supply_first(tmp_path):
    def brake(sections):
        clocks = sections["gpus"]["devices"][3]["clocks"]
        clocks["throttle_reasons"] = ["hw_slowdown", "hw_power_brake"]

    shown = advice_of(tmp_path, brake)["gpu-slowed-by-hardware"]
    assert shown.startswith("check power supplies and the power brake of the board first")


def test_an_interface_that_peers_have_is_created_first(tmp_path):
    named = setting("NCCL_SOCKET_IFNAME", "bond0.312")
    shown = advice_of(tmp_path, named)["nccl-interface-does-not-exist"]
    assert shown.startswith("create bond0.312 here if its peers have it; only else name")


def test_no_row_replacement_is_for_good_while_one_waits_for_a_reset(tmp_path):
    def pending(sections):
        gpu = sections["gpus"]["devices"][2]
        gpu["row_remap"] |= {"uncorrected": 1, "pending": True}

    sections = faulty_fleet.healthy_sections("dgx_h200")
    pending(sections)
    judge_cases.write_run(tmp_path / "run", judge_cases.node("gpu1", sections))
    found = judge_folder(tmp_path / "run", [], None, "2026-11-20")["causes"]
    rules = {rule for one in found for rule in (one["rule"], *one["explains"])}
    assert "gpu-row-remap-pending" in rules
    assert "gpu-rows-remapped" not in rules


def test_values_with_the_same_beginning_show_the_words_that_differ():
    common = " ".join(f"unit-of-the-node-{place}" for place in range(6))
    rows = [
        {"value": f"{common} slurmd", "count": 3, "hosts": ["gpu1", "gpu3", "gpu4"]},
        {"value": f"{common}", "count": 1, "hosts": ["gpu2"]},
    ]
    shown = _advice({"counts": rows, "majority": rows[0]["value"]}, "", "")
    assert shown.startswith("without on gpu2: set what 3 nodes have, with slurmd;")
    alike = [{**row, "value": f"{common * 3}{row['count']}".replace(" ", "")} for row in rows]
    assert "unit" not in _advice({"counts": alike, "majority": alike[0]["value"]}, "", "")


def test_a_container_gets_no_advice_for_the_kernel_of_its_host(tmp_path):
    sections = faulty_fleet.healthy_sections("dgx_h200")
    sections["kernel"]["cmdline"] += " pci=noaer"
    sections["kernel"]["modprobe"] |= {"forbidden": [], "options": []}
    rules = {}
    for inside in (True, False):
        sections["node"]["virtualization"]["is_container"] = inside
        judge_cases.write_run(tmp_path / f"{inside}", judge_cases.node("gpu1", sections))
        causes = judge_folder(tmp_path / f"{inside}", [], None, "2026-11-20")["causes"]
        rules[inside] = {one["rule"] for one in causes}
    host = {"boot-parameter-against-norm", "nouveau-not-forbidden"}
    assert host <= rules[False]
    assert not host & rules[True]


@pytest.mark.parametrize(
    ("mode", "now", "command"),
    [
        ("ecc", True, "nvidia-smi -i 5 -e 1,"),
        ("ecc", False, "nvidia-smi -i 5 -e 0,"),
        ("mig", False, "nvidia-smi -i 5 -mig 0,"),
    ],
)
def test_a_change_that_nobody_ordered_is_taken_back_before_it_is_carried_out(
    tmp_path, mode, now, command
):
    def pending(sections):
        for one in sections["gpus"]["devices"]:
            one[mode].update(enabled=now, pending=now)
        sections["gpus"]["devices"][5][mode]["pending"] = not now

    (advice,) = (text for rule, text in advice_of(tmp_path, pending).items() if "pending" in rule)
    assert advice.index(command) < advice.index("drain the node and reset")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("0x1 (GPU Reset Required)", "drain the node, then reset the GPU"),
        ("0x2 (Node Reboot Required)", "drain the node, then reboot it"),
        ("0x3 (Drain P2P)", "end all jobs that use peer-to-peer"),
        ("0x4 (Drain and Reset)", "let the jobs of this GPU end, then reset it"),
        ("0x7 (Something New)", "the action that the line names"),
    ],
)
def test_xid_154_asks_for_what_its_own_line_says(tmp_path, action, words):
    line = (
        f"NVRM: Xid (PCI:0000:0a:00): 154, GPU recovery action changed from 0x0 (None) to {action}"
    )
    rule = next(one for one in catalogue().rules if one.id == "xid-154-asks-for-recovery")
    event = {"kind": "xid", "code": 154, "count": 1, "pci_address": "0000:0a:00.0", "line": line}
    fragment = to_fragment({"faults": {"events": [event]}})
    world = node_world(NodeView("gpu1", (), {}, "ok", "", "", fragment), view())
    (judged,) = judge_rule(rule, world)
    items = {one.path: one for one in world.items(rule.for_each.evaluate(world))}
    assert words in finding_texts(rule, world, judged, items)["remedy.person"]
