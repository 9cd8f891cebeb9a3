"""A fault that several rules see is one cause on the first screen: the others are folded under the
rule that names it."""

from __future__ import annotations

import copy

import judge_cases
import pytest
from gallery import read_gallery

from unhang.judge.triage.run_judging import judge_folder

HEALTHY = next(machine.document for machine in read_gallery() if machine.name == "dgx_h200")
GSP = (
    "NVRM: Xid (PCI:0000:15:00): 119, pid=482013, name=python3, Timeout after 6s of waiting for RPC"
    " response from GPU5 GSP!"
)
CHANGED = "NVRM: Xid (PCI:0000:15:00): 154, GPU recovery action changed from 0x0 (None)"
NEXT = "6.8.0-155-generic"


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
    kernel["dkms"].append({**kernel["dkms"][0], "kernel": NEXT, "state": "added"})
    kernel["boot"]["default_release"] = NEXT
    kernel.update(reboot_required=True, reboot_reasons=["linux-image-" + NEXT])


def card_at_eight_lanes(sections):
    sections["network"]["rdma"][3]["pcie"].update(width_now=8)


def small_window_of_a_gpu(sections):
    sections["gpus"]["devices"][5]["bar1_total_mib"] = 256.0


def gpu_that_does_not_answer(sections):
    sections["gpus"]["devices"].pop()
    sections["gpus"]["count"] = 7
    links = sections["interconnect"]
    links.update(
        links=[one for one in links["links"] if one["gpu"] < 7],
        pairs=[one for one in links["pairs"] if one["b"] < 7],
        by_gpu=links["by_gpu"][:7],
    )


def xid(code, line):
    return [event("python3", line, "xid") | {"code": code, "pci_address": "0000:15:00.0"}]


def firmware_that_does_not_answer(sections):
    sections["faults"]["events"] = xid(119, GSP)


def recovery(action, number):
    """NVML asks for it, and an Xid 154 does."""

    def change(sections):
        sections["gpus"]["devices"][5]["recovery_action"] = action
        sections["faults"]["events"] = xid(154, f"{CHANGED} to {number}")

    return change


def root_turned_read_only(sections):
    next(one for one in sections["limits"]["filesystems"] if one["path"] == "/").update(
        read_only=True
    )
    slurmd_that_restarts(sections)
    sections["faults"]["events"] = [
        event("filesystem-read-only", "EXT4-fs (md0): Remounting filesystem read-only")
    ]


def slurmd_that_restarts(sections):
    sections["node"]["troubled_units"] = [{"name": "slurmd.service", "state": "restarting"}]
    sections["node"]["services"].append(
        {"name": "slurmd", "state": "enabled", "running": False, "replaced": False}
    )


def event(subject, line, kind="other"):
    return {
        "kind": kind,
        "code": None,
        "pci_address": None,
        "subject": subject,
        "severity": None,
        "count": 1,
        "first_s": 1.0,
        "last_s": 1.0,
        "line": line,
    }


def nouveau_in_place_of_the_driver(sections):
    sections["driver"].update(nouveau_loaded=True)
    sections["driver"]["loaded"].update(is_loaded=False, version=None, flavour=None, line=None)
    sections["node"]["troubled_units"] = [
        {"name": "nvidia-persistenced.service", "state": "failed"}
    ]


def forbidden_uvm(sections):
    sections["kernel"]["modprobe"]["forbidden"].append("nvidia_uvm")
    driver = sections["driver"]
    driver["device_nodes"] = [one for one in driver["device_nodes"] if "uvm" not in one["path"]]


def silent_file_server(sections):
    sections["faults"]["events"] = [
        event("nfs-server", "nfs: server 10.20.4.5 not responding, still trying"),
        event("df", "INFO: task df:41301 blocked for more than 120 seconds.", "hung_task"),
    ]


def row_that_could_not_be_replaced(sections):
    gpu = sections["gpus"]["devices"][5]
    gpu["row_remap"].update(failed=True, uncorrected=8, banks_without_spare=1)
    gpu["ecc"].update(uncorrected_volatile=1, uncorrected_aggregate=9)


FAULTS = {
    "filesystem-read-only": root_turned_read_only,
    "service-restarts-that-jobs-need": slurmd_that_restarts,
    "driver-nouveau-loaded": nouveau_in_place_of_the_driver,
    "driver-forbidden-at-next-boot": forbidden_uvm,
    "kernel-message-of-fault": silent_file_server,
    "gpu-needs-replacement": row_that_could_not_be_replaced,
    "dkms-module-missing-for-next-boot": next_kernel_without_module,
    "rdma-card-slower-than-its-port": card_at_eight_lanes,
    "gpu-bar1-smaller-than-memory": small_window_of_a_gpu,
    "gpu-fell-off-the-bus": gpu_that_does_not_answer,
    "driver-gsp-does-not-answer": firmware_that_does_not_answer,
    "gpu-needs-reboot": recovery("reboot", "0x2 (Node Reboot Required)"),
    "gpu-asks-for-recovery": recovery("drain_p2p", "0x3 (Drain P2P)"),
}


@pytest.mark.parametrize("rule", FAULTS)
def test_a_fault_is_one_cause(tmp_path, rule):
    sections = copy.deepcopy(HEALTHY["sections"])
    FAULTS[rule](sections)
    judge_cases.write_run(tmp_path / "run", judge_cases.node("gpu1", sections))
    causes = [
        cause
        for cause in judge_folder(tmp_path / "run", [], None, "2026-11-20")["causes"]
        if cause["severity"] != "info"
    ]
    assert [cause["rule"] for cause in causes] == [rule]
    assert causes[0]["explains"] != []
