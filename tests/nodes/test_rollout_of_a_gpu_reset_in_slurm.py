"""A GPU that its driver wants reset, from the audit to the release: the plan drains the node in a
real Slurm, the role resets that GPU alone, the node is proved and takes jobs again; the same fault
within a day is a person's, with the vendor's ticket."""

from __future__ import annotations

import types

import gpu_daemons
import gpu_reset_programs
import pytest
import slurm_nodes
import torch_in_nodes
from slurm_site import DEADLINE_S, Site, entries, failed_rules, states

NODE = "gpu001"
UUID = "GPU-00000002-0000-4000-8000-000000000000"  # GPU 3 of the capture
RULE = "gpu-needs-reset"
WANTS_RESET = {"3": {"fields": {"NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": 1}}}
DCGM, PERSISTENCED, _ = gpu_daemons.UNITS
pytestmark = slurm_nodes.marks(2400)


@pytest.fixture(scope="module")
def story(fake_library, tmp_path_factory):
    """Audit, plan, rollout, audit; then the fault again, audit, plan."""
    work = tmp_path_factory.mktemp("reset")
    with slurm_nodes.cluster_of((NODE,), fake_library, work) as cluster:
        fleet, site = cluster.fleet, Site(cluster, work)
        fleet.answer(NODE, devices=WANTS_RESET)
        gpu_daemons.start(fleet, NODE, (DCGM, PERSISTENCED))
        gpu_reset_programs.plant(fleet, NODE)
        run = site.audit()
        planned = site.plan(run, "--floor", "0", "--max-unavailable", "1", "--rule", RULE)
        with site.remediating(run, torch_in_nodes.PYTHON) as process:
            code = process.wait(timeout=DEADLINE_S)
        called, repaired = gpu_daemons.called(fleet, NODE), site.audit()
        fleet.answer(NODE, devices=WANTS_RESET)
        again = site.audit()
        yield types.SimpleNamespace(
            run=run,
            planned=planned,
            code=code,
            called=called,
            slurm=cluster.state(NODE),
            repaired=failed_rules(repaired, [NODE])[NODE],
            again=site.plan(again, "--floor", "0", "--max-unavailable", "1"),
            output=site.output,
        )


def test_the_plan_resets_the_gpu_without_a_boot(story):
    [row] = story.planned["hosts"]
    assert [remedy["role"] for remedy in row["remedies"]] == ["gpu_reset"]
    assert row["reboots"] == []


def test_the_node_is_drained_reset_proved_and_released(story):
    assert (story.code, states(story.run, [NODE])) == (0, {NODE: "released"}), story.output[-4000:]
    done = [
        step
        for step in ("drain", "apply", "audit", "smoke_alone", "release")
        if entries(story.run, NODE, step, "done")
    ]
    assert done == ["drain", "apply", "audit", "smoke_alone", "release"]
    assert story.slurm[0] == "IDLE"
    assert RULE not in story.repaired


def test_that_gpu_alone_was_reset_once_with_its_services_stopped(story):
    assert [one for one in story.called if "--query" not in one] == [
        f"stop {DCGM}",
        f"stop {PERSISTENCED}",
        f"nvidia-smi --gpu-reset -i {UUID}",
        f"start {PERSISTENCED}",
        f"start {DCGM}",
    ]


def test_the_same_fault_within_a_day_is_for_a_person(story):
    [row] = story.again["hosts"]
    assert "gpu_reset" not in [remedy["role"] for remedy in row["remedies"]]
    [person] = [one for one in row["person"] if "replace" in one["what"]]
    assert UUID in person["what"] or "GPU 3" in person["what"]
