"""A rollback never writes back a menu of GRUB that starts other kernels than the node has by
then."""

from __future__ import annotations

import os
import subprocess

import pytest
from fakes.ansible_module import run_module
from fakes.boot_tree import NEW, OLD, fake_tools, kernel_files, plant_grub_node
from fakes.node_tree import plant

MENU = "boot/grub/grub.cfg"
NEWER = "6.1.0-57-amd64"


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A node on which the role host_tuning has set a parameter of the kernel's command line, and
    the command that rebuilds its menu."""
    monkeypatch.setenv("PATH", f"{fake_tools(tmp_path / 'bin')}:{os.environ['PATH']}")
    root = plant_grub_node(tmp_path / "node")
    plant(root, {"/etc/default/grub": "GRUB_DEFAULT=0\n"})
    (root / MENU).write_text((root / MENU).read_text() + "# by hand\n")
    state_id = run_module(
        "saved_state", rootfs=str(root), state="begun", role="host_tuning", run="r"
    )["id"]
    run_module(
        "boot_parameter", rootfs=str(root), name="iommu", parameters=["iommu=pt"], state_id=state_id
    )
    update_grub(root)
    run_module("saved_state", rootfs=str(root), state="finished", id=state_id)
    assert "iommu=pt" in (root / MENU).read_text()
    return root


def update_grub(root):
    subprocess.run(["chroot", str(root), "update-grub"], check=True)


def remove_kernel(root, release):
    for path in kernel_files(release):
        (root / path.lstrip("/")).unlink()


def restore(root):
    answer = run_module("state_restore", rootfs=str(root), id="latest")
    assert not answer.get("failed"), answer
    assert not (root / "etc/default/grub.d/zz-unhang-iommu.cfg").exists()
    text = (root / MENU).read_text()
    assert "iommu=pt" not in text
    return answer, text


def test_a_menu_of_the_same_kernels_comes_back_byte_for_byte(node):
    answer, text = restore(node)
    assert text.endswith("# by hand\n")
    assert f"file /{MENU}: as it was" in answer["lines"]


def test_a_kernel_that_was_removed_meanwhile_is_started_by_no_entry(node):
    remove_kernel(node, NEW)
    update_grub(node)
    answer, text = restore(node)
    assert (NEW in text, OLD in text) == (False, True)
    assert f"file /{MENU}: made anew for the kernels that are there" in answer["lines"]
    assert answer["needs_manual_action"] == []


def test_a_kernel_that_goes_with_the_same_rollback_is_started_by_no_entry(node):
    remove_kernel(node, NEW)  # the menu is still the one that the role made
    _answer, text = restore(node)
    assert (NEW in text, OLD in text) == (False, True)


def test_a_kernel_that_came_meanwhile_keeps_its_entry(node):
    plant(node, kernel_files(NEWER))
    update_grub(node)
    assert NEWER in restore(node)[1]


def test_what_an_admin_put_on_the_command_line_meanwhile_stays_there(node):
    plant(
        node,
        {
            "/etc/default/grub.d/zzz-kdump.cfg": (
                'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=512M"\n'
            )
        },
    )
    update_grub(node)
    assert "crashkernel=512M" in restore(node)[1]


@pytest.mark.parametrize("boot_id", ["boot-1", "boot-2"])  # the state was begun in boot-1
def test_a_parameter_that_a_boot_has_read_runs_until_the_next_one(node, boot_id):
    plant(node, {"/proc/sys/kernel/random/boot_id": boot_id + "\n"})
    assert restore(node)[0]["reboot_needed"] == (boot_id == "boot-2")
