"""After a power cut at any write of a kernel's trial boot the node can boot."""

from __future__ import annotations

import os

import pytest
from boot_trials import GPUS, arm, boots, call, started
from fakes.boot_tree import (
    NEW,
    OLD,
    fake_tools,
    plant_grub_node,
)

from unhang_node.change.boot import trial as boot_trial


@pytest.fixture(autouse=True)
def tools(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{fake_tools(tmp_path / 'bin')}:{os.environ['PATH']}")


def test_after_any_step_a_power_cut_leaves_the_old_kernel_the_default(tmp_path):
    count = len(boot_trial.prepare_steps(str(plant_grub_node(tmp_path / "count")), "panic=30"))
    for done in range(count + 1):
        # The kernel is installed after the last of these steps, and update-grub runs then: so at
        # each of these cuts the new kernel is in no menu yet.
        node = plant_grub_node(tmp_path / f"cut-{done}", kernels=(OLD,))
        for step in boot_trial.prepare_steps(str(node), "panic=30")[:done]:
            step.act()
        assert boots(node) == (OLD, None)
        assert call(node, "prepared")["standing"] == "prepared"
        assert boots(node) == (OLD, None)


def test_after_any_step_of_confirming_a_power_cut_leaves_a_node_that_boots_and_can_be_confirmed(
    tmp_path,
):
    for done in range(12):
        node = plant_grub_node(tmp_path / f"cut-{done}")
        arm(node)
        started(node, NEW)
        steps = boot_trial.confirm_steps(str(node), NEW, GPUS)
        for step in steps[:done]:
            step.act()
        default, one_shot = boots(node)
        guarded = (node / "etc/unhang/boot-trial").exists()
        assert one_shot is None
        # If the default is the new kernel, the guard would reboot for ever.
        assert default == OLD or not guarded
        assert call(node, "confirmed", release=NEW, gpus=GPUS)["standing"] == "confirmed"
        assert boots(node) == (NEW, None)
