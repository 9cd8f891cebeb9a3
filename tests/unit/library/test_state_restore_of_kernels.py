"""A rollback of a kernel: packages of the kernel that runs cannot go, so the boot entry comes back
first and the rest waits for the reboot."""

from __future__ import annotations

import json
import os

import pytest
from fakes.ansible_module import run_module, tree
from fakes.boot_tree import NEW, OLD, fake_tools, kernel_files, plant_grub_node, running_files
from fakes.node_tree import dpkg_status, plant

from unhang_node.change.atomic_files import STATES
from unhang_node.change.package.saved import SCHEMA

IMAGE = f"linux-image-{NEW}"
ROW = {
    "name": IMAGE,
    "architecture": "amd64",
    "before": None,
    "after": "6.1.159-1",
    "deb": None,
    "held": False,
    "automatic": False,
    "config_files": False,
}
GPUS = ["GPU-0"]


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node that runs its new kernel; the state knows the old one."""
    monkeypatch.setenv("PATH", f"{fake_tools(tmp_path / 'bin')}:{os.environ['PATH']}")
    root = plant_grub_node(tmp_path / "node", kernels=(OLD,))
    plant(
        root,
        {
            "/var/lib/dpkg/status": dpkg_status({"dpkg": "1.21", IMAGE: "6.1.159-1"}) + "\n",
            "/var/lib/dpkg/updates/": "",
        },
    )
    state_id = run_module("saved_state", rootfs=str(root), state="begun", role="kernel", run="r")[
        "id"
    ]
    run_module("boot_trial", rootfs=str(root), state="prepared", state_id=state_id)
    plant(root, kernel_files(NEW))
    run_module("boot_trial", rootfs=str(root), state="armed", release=NEW, gpus=GPUS)
    plant(
        root,
        {
            f"{STATES}/{state_id}/packages.json": json.dumps(
                {"schema": SCHEMA, "packages": [ROW], "status": "done"}
            ),
            **running_files(NEW, "boot-2"),
        },
    )
    run_module("boot_trial", rootfs=str(root), state="confirmed", release=NEW, gpus=GPUS)
    run_module("saved_state", rootfs=str(root), state="finished", id=state_id)
    return root


def restore(node, check=False):
    return run_module("state_restore", check=check, rootfs=str(node), id="latest")


def status(node):
    return run_module("saved_state", rootfs=str(node), state="listed")["states"][0]["status"]


def test_packages_of_the_kernel_that_runs_wait_until_the_old_one_does(node):
    before = tree(node)
    foretold = restore(node, check=True)
    assert tree(node) == before
    assert foretold["waits_for"] == OLD
    assert foretold["reboot_needed"]
    assert [row["name"] for row in foretold["packages"]] == [IMAGE]
    assert foretold["boot"]

    done = restore(node)
    assert done["waits_for"] == OLD
    assert done["packages"] == []
    assert any("the rest waits until kernel" in line for line in done["lines"])
    assert status(node) == "finished"

    plant(node, running_files(OLD, "boot-3"))
    rest = restore(node, check=True)
    assert rest["waits_for"] is None
    assert [row["name"] for row in rest["packages"]] == [IMAGE]
