"""The role gpu_reset on a booted node with the fake driver: the faulty GPU alone is reset, it is
refused while anybody holds a GPU, and the same fault is not reset twice within a day."""

from __future__ import annotations

import json

import gpu_daemons
import gpu_reset_programs
import pytest
from gpu_reset_programs import KERNEL_LOG
from module_calls import call_module
from role_plays import play_role, state_of

NODE = "gpu001"
UUID = "GPU-00000002-0000-4000-8000-000000000000"  # GPU 3 of the capture
RESET = f"nvidia-smi --gpu-reset -i {UUID}"
XID_95 = "NVRM: Xid (PCI:0000:00:09): 95, pid=4711, name=python3, Uncontained error"
XID_79 = "NVRM: Xid (PCI:0000:00:09): 79, GPU has fallen off the bus."
DCGM, PERSISTENCED, _ = gpu_daemons.UNITS
SERVICES = (DCGM, PERSISTENCED)

pytestmark = pytest.mark.timeout(900)  # up to four plays each


@pytest.fixture
def faulty(fleet):
    """A node whose driver asks for a reset of GPU 3, with an Xid 95 and services on its GPUs."""
    fleet.answer(NODE, devices={"3": {"fields": {"NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": 1}}})
    gpu_daemons.start(fleet, NODE, SERVICES)
    gpu_reset_programs.plant(fleet, NODE, XID_95)
    return fleet


def reset(fleet, *arguments, **variables):
    return play_role(
        fleet, "gpu_reset", NODE, {}, *arguments, unhang_kernel_log=KERNEL_LOG, **variables
    )


def facts(fleet):
    """(recovery action of GPU 3, codes of the Xids, resets) as the collector reads them."""
    found = call_module(fleet, NODE, "gpu_node_info", kernel_log=KERNEL_LOG)["node_facts"]
    faults = found["sections"]["faults"]
    return (
        found["sections"]["gpus"]["devices"][3]["recovery_action"],
        [event["code"] for event in faults["events"]],
        [(row["uuid"], row["verb"], row["because"]) for row in faults["resets"]],
    )


def test_the_faulty_gpu_alone_is_reset_and_a_second_run_changes_nothing(faulty):
    assert facts(faulty) == ("reset", [95], [])
    before = state_of(faulty, NODE)
    foretold = reset(faulty, "--check")
    assert foretold.code == 0
    assert f"{RESET}" in foretold.output
    assert gpu_daemons.called(faulty, NODE) == []
    assert state_of(faulty, NODE) == before

    done = reset(faulty)
    assert done.code == 0
    assert done.changed == foretold.changed
    assert gpu_daemons.called(faulty, NODE) == [
        *(f"stop {unit}" for unit in SERVICES),
        RESET,
        *(f"start {unit}" for unit in SERVICES[::-1]),
    ]
    assert facts(faulty) == (
        "none",
        [],
        [(UUID, "reset the GPU", ["NVML's recovery action reset", "Xid 95"])],
    )
    again = reset(faulty)
    assert again.changed == {NODE: 0}
    assert gpu_daemons.called(faulty, NODE) == []


def test_it_is_refused_while_a_job_holds_a_gpu(faulty):
    job = gpu_daemons.start_job(faulty, NODE, "auditor")
    before = state_of(faulty, NODE)
    refused = reset(faulty)
    assert refused.failed == {NODE: 1}
    assert f"process {job} (sleep) of auditor on GPU " in refused.output
    assert gpu_daemons.called(faulty, NODE) == []
    assert state_of(faulty, NODE) == before
    assert "refused as long as it is so" in reset(faulty, "--check").output
    # the module asks again by itself: nobody can come in between
    gpus = [{"uuid": UUID, "verb": "reset the GPU", "because": ["Xid 95"]}]
    answer = call_module(faulty, NODE, "gpu_services", state="reset", gpus=gpus)
    assert "the GPUs are in use by" in answer["msg"]
    assert gpu_daemons.called(faulty, NODE) == []
    assert gpu_daemons.process_of(faulty, NODE, "job") == job


def test_beside_an_exporter_in_a_unit_that_nobody_knows_it_is_refused_with_the_unit(faulty):
    gpu_daemons.start_unit(
        faulty, NODE, "site-exporter", "sh", "-c", f"exec 3<{gpu_daemons.DEVICE}; exec sleep 1d"
    )
    before = state_of(faulty, NODE)
    assert "(sleep) of site-exporter.service on GPU " in reset(faulty).output
    assert (gpu_daemons.called(faulty, NODE), state_of(faulty, NODE)) == ([], before)


def test_an_xid_that_comes_as_the_services_start_after_the_reset_is_not_settled_by_it(faulty):
    says = f'read up rest </proc/uptime; echo "[$up] {XID_95}" >>{KERNEL_LOG}; sleep 1'
    faulty.plant(
        NODE,
        f"/etc/systemd/system/{DCGM}.service.d/fault.conf",
        f"[Service]\nExecStartPre=/bin/sh -c '{says}'\n",
    )
    faulty.shell(NODE, "systemctl daemon-reload")
    assert reset(faulty).code == 0
    assert facts(faulty)[:2] == ("none", [95])
    assert "not done by this role: replace: GPU 3" in reset(faulty).output


def test_a_fault_that_comes_back_within_a_day_is_not_reset_again(faulty):
    assert reset(faulty).code == 0
    gpu_daemons.called(faulty, NODE)
    gpu_reset_programs.log(faulty, NODE, XID_95, stamp_s=9e7)
    second = reset(faulty)
    assert second.code == 0
    assert "not done by this role: replace: GPU 3" in second.output
    assert "writes the vendor's ticket" in second.output
    assert gpu_daemons.called(faulty, NODE) == []
    # the module refuses it too, whoever asks
    gpus = [{"uuid": UUID, "verb": "reset the GPU", "because": ["Xid 95"]}]
    answer = call_module(faulty, NODE, "gpu_services", state="reset", gpus=gpus)
    assert "for Xid 95; have the GPU replaced" in answer["msg"]
    assert gpu_daemons.called(faulty, NODE) == []


def test_a_reset_that_fails_starts_the_services_and_counts(faulty):
    faulty.shell(NODE, "touch /srv/reset-fails")
    failed = reset(faulty)
    assert failed.failed == {NODE: 1}
    assert f"failed with 255: {RESET}" in failed.output
    assert all(gpu_daemons.process_of(faulty, NODE, unit) for unit in SERVICES)
    faulty.shell(NODE, "rm /srv/reset-fails")
    assert facts(faulty)[:2] == ("reset", [95])
    gpu_daemons.called(faulty, NODE)
    assert "not done by this role: replace: GPU 3" in reset(faulty).output
    assert gpu_daemons.called(faulty, NODE) == []


def test_a_gpu_that_needs_a_boot_is_not_reset_and_the_boot_is_recorded(faulty):
    gpu_reset_programs.log(faulty, NODE, XID_79)
    done = reset(faulty)
    assert done.code == 0
    assert f"the node must boot: reboot the node: GPU 3 ({UUID}, 0000:00:09.0), for Xid 79" in (
        done.output
    )
    assert gpu_daemons.called(faulty, NODE) == []
    assert facts(faulty)[2] == [(UUID, "reboot the node", ["Xid 79"])]
    record = json.loads(faulty.shell(NODE, "cat /var/lib/unhang/gpu_resets.json"))
    assert record["resets"][0]["log_s"] is None
    assert "not done by this role: power-cycle: GPU 3" in reset(faulty).output


def test_a_healthy_node_is_left_alone(fleet):
    gpu_reset_programs.plant(fleet, NODE)
    gpu_daemons.start(fleet, NODE, SERVICES)
    assert reset(fleet).changed == {NODE: 0}
    assert gpu_daemons.called(fleet, NODE) == []
