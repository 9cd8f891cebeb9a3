"""The module boot_trial over prepared boot files: its writes and their order, its refusals, and a
rollback that restores everything."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from boot_trials import GPUS, arm, boots, call, environment, started
from case_rows import case_rows
from fakes.ansible_module import tree
from fakes.boot_tree import (
    NEW,
    OLD,
    entry_id,
    fake_tools,
    grub_cfg,
    grubenv,
    kernel_files,
    plant_bls_node,
    plant_grub_node,
    plant_systemd_boot_node,
    running_files,
)
from fakes.node_tree import plant

from unhang_node.base.parse.grub import parse_grubenv
from unhang_node.change.rollback.boot import reboot_needed, restore_boot

ROWS = case_rows(__file__)


@pytest.fixture(autouse=True)
def tools(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{fake_tools(tmp_path / 'bin')}:{os.environ['PATH']}")


@pytest.fixture
def node(tmp_path):
    return plant_grub_node(tmp_path / "node")


def test_a_newer_kernel_does_not_boot_by_itself_once_the_running_one_is_prepared(node):
    assert boots(node) == (NEW, None)
    before = tree(node)
    foretold = call(node, "prepared", check=True)
    assert foretold["changed"]
    assert tree(node) == before
    done = call(node, "prepared")
    assert [row["what"] for row in done["changes"]] == [row["what"] for row in foretold["changes"]]
    assert boots(node) == (OLD, None)
    assert "panic=30" in (node / "boot/grub/grub.cfg").read_text()
    assert call(node, "prepared")["changed"] is False


def test_the_environment_block_keeps_its_size_and_what_others_wrote(node):
    arm(node)
    data = (node / "boot/grub/grubenv").read_bytes()
    assert len(data) == 1024
    assert environment(node) == {
        "theirs": "kept",
        "saved_entry": entry_id(OLD),
        "next_entry": entry_id(NEW),
    }


def test_the_next_boot_alone_takes_the_new_kernel(node):
    assert arm(node)["standing"] == "armed"
    assert boots(node) == (OLD, entry_id(NEW))
    assert (node / "etc/systemd/system/sysinit.target.wants/unhang-boot-trial.service").is_symlink()
    assert call(node, "armed", release=NEW, gpus=GPUS)["changed"] is False
    before = tree(node)
    assert call(node, "armed", check=True, release=NEW, gpus=GPUS, confirm_within_s=60)["changed"]
    assert tree(node) == before


def test_the_guard_is_a_script_that_a_shell_can_read(node):
    arm(node, confirm_within_s=77)
    script = node / "etc/unhang/boot-trial"
    subprocess.run(["sh", "-n", str(script)], check=True)
    assert f"= '{NEW}' ] || exit 0" in script.read_text()
    assert "-lt 77 ]" in script.read_text()
    assert "grub-editenv /boot/grub/grubenv unset next_entry" in script.read_text()


@pytest.mark.parametrize(
    ("watchdog", "theirs", "fed"),
    [(True, "", True), (False, "", False), (True, "[Manager]\nRuntimeWatchdogSec=20\n", False)],
)
def test_a_watchdog_is_fed_where_there_is_one_and_nobody_else_feeds_it(node, watchdog, theirs, fed):
    plant(
        node,
        {
            **({"/sys/class/watchdog/watchdog0/": ""} if watchdog else {}),
            "/etc/systemd/system.conf": theirs,
        },
    )
    arm(node)
    assert (node / "etc/systemd/system.conf.d/50-unhang-boot-trial.conf").exists() is fed


def test_what_runs_on_trial_becomes_the_default_when_it_is_confirmed(node):
    arm(node)
    started(node, NEW)
    assert call(node, "inspected")["standing"] == "on_trial"
    done = call(node, "confirmed", release=NEW, gpus=GPUS)
    assert done["standing"] == "confirmed"
    assert boots(node) == (NEW, None)
    assert "panic=" not in (node / "boot/grub/grub.cfg").read_text()
    assert not (node / "etc/unhang").exists()
    assert not (node / "etc/systemd/system/unhang-boot-trial.service").exists()
    kept = (node / "etc/apt/apt.conf.d/52unhang-kernel").read_text()
    assert "6\\.1\\.0-55-amd64$" in kept
    assert "6\\.1\\.0-56-amd64$" in kept
    assert call(node, "confirmed", release=NEW, gpus=GPUS)["changed"] is False
    assert call(node, "cancelled")["changed"] is False


def test_a_kernel_that_lost_a_gpu_is_not_confirmed(node):
    arm(node)
    started(node, NEW)
    before = tree(node)
    refused = call(node, "confirmed", release=NEW, gpus=["GPU-0"])
    assert refused["failed"]
    assert "GPU-1" in refused["msg"]
    assert tree(node) == before


@pytest.mark.parametrize("release", [OLD, "6.1.0-40-amd64"])
def test_another_kernel_than_the_one_asked_for_is_not_confirmed(node, release):
    arm(node)
    started(node, release)
    refused = call(node, "confirmed", release=NEW, gpus=GPUS)
    assert f"{release} runs, not {NEW}, which was on trial" in refused["msg"]
    assert call(node, "inspected")["standing"] == "fell_back"
    done = call(node, "cancelled")
    assert (f"back on {release}, which is neither {NEW} nor {OLD}" in done["why"]) == (
        release != OLD
    )
    assert boots(node) == (OLD, None)


def test_a_kernel_that_fell_back_is_remembered_and_stays_off(node):
    arm(node)
    started(node, OLD)
    plant(
        node,
        {
            "/var/lib/unhang/boot-trial-fell-back": (
                f"{NEW} was not confirmed within 900 s after its start\n"
            )
        },
    )
    done = call(node, "cancelled")
    assert done["standing"] == "fell_back"
    assert "was not confirmed within 900 s" in done["why"]
    assert boots(node) == (OLD, None)  # although the newer kernel is still on the disk
    assert not (node / "etc/unhang").exists()
    assert call(node, "cancelled")["changed"] is False


def test_a_trial_that_is_under_way_keeps_its_guard_when_it_is_cancelled(node):
    arm(node)
    started(node, NEW)
    done = call(node, "cancelled", why="2 GPUs are gone")
    assert done["standing"] == "on_trial"
    assert boots(node) == (OLD, None)
    assert (node / "etc/unhang/boot-trial").exists()
    started(node, OLD, "boot-3")
    assert call(node, "cancelled")["why"] == "2 GPUs are gone"
    assert not (node / "etc/unhang").exists()


BY_TITLE = f"Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux {OLD}"


# by hand in GRUB_DEFAULT: by number, id and title, in a submenu, and an entry that is no more
@pytest.mark.parametrize("choice", ["0", "1>0", entry_id(OLD), BY_TITLE, "removed"])
def test_once_the_new_kernel_is_gone_everything_is_as_it_was(tmp_path, choice):
    node = plant_grub_node(tmp_path / "node", kernels=(OLD,))
    site = f'GRUB_DEFAULT="{choice}"\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'
    menu = grub_cfg([OLD], choice)
    plant(node, {"/etc/default/grub.d/50-site.cfg": site, "/boot/grub/grub.cfg": menu})
    before = tree(node)
    call(node, "prepared")
    plant(node, kernel_files(NEW))
    subprocess.run(["chroot", node, "update-grub"], check=True)  # as its package does
    arm(node)
    assert boots(node) == (OLD, entry_id(NEW))
    for path in kernel_files(NEW):
        (node / path.lstrip("/")).unlink()
    (node / f"lib/modules/{NEW}").rmdir()
    assert call(node, "cancelled")["standing"] == "cancelled"
    after = {
        path: content
        for path, content in tree(node).items()
        if not path.startswith(("/var", "/etc/systemd"))
    }
    assert after == {
        path: content
        for path, content in before.items()
        if not path.startswith(("/var", "/etc/systemd"))
    }


REFUSED = ROWS["REFUSED"]


@pytest.mark.parametrize("case", REFUSED)
def test_where_grub_cannot_clear_its_one_shot_entry_nothing_is_written(tmp_path, case):
    where, why = REFUSED[case]
    node = plant_grub_node(tmp_path / "node", **where)
    before = tree(node)
    for state in ("prepared", "armed"):
        refused = call(node, state, release=NEW)
        assert why in refused["refused"][0]
        assert "again and again" in refused["msg"]
    assert tree(node) == before


def test_a_node_without_a_boot_loader_on_its_disk_gets_its_kernel_elsewhere(tmp_path):
    node = tmp_path / "node"
    plant(node, running_files(source="server:/root", fs_type="nfs", device="0:50"))
    refused = call(node, "prepared")
    assert "boots from the network or from an image" in refused["msg"]
    assert call(node, "inspected")["loader"]["refused"] == refused["msg"]


def test_somebody_elses_one_shot_entry_is_left_alone(node):
    plant(node, {"/boot/grub/grubenv": grubenv(next_entry="1>4")})
    refused = call(node, "prepared")
    assert "somebody else set the one-shot boot entry '1>4'" in refused["msg"]


def test_a_default_that_nobody_prepared_is_no_default_to_fall_back_to(node):
    refused = call(node, "armed", release=NEW)
    assert f", not {OLD}, to which a trial falls back" in refused["msg"]


@pytest.mark.parametrize(
    ("files", "removed", "message"),
    [
        ({f"/boot/initrd.img-{NEW}": ""}, (), f"/boot/initrd.img-{NEW}"),
        ({}, (f"boot/initrd.img-{NEW}",), f"update-initramfs -c -k {NEW}"),
        ({}, (f"lib/modules/{NEW}/modules.dep",), "modules.dep"),
        ({}, (f"boot/vmlinuz-{NEW}",), "the image"),
    ],
)
def test_a_kernel_that_cannot_come_up_is_not_armed(node, files, removed, message):
    call(node, "prepared")
    plant(node, files)
    for path in removed:
        (node / path).unlink()
    refused = call(node, "armed", release=NEW)
    assert message in refused["msg"]
    assert boots(node) == (OLD, None)


MODULES = {
    "dkms": (
        ["updates/dkms/nvidia.ko.xz", "updates/dkms/nvidia-uvm.ko.xz"],
        ["nvidia", "nvidia_uvm"],
        [],
    ),
    "Debian's names": (
        ["updates/dkms/nvidia-current.ko", "updates/dkms/nvidia-current-uvm.ko"],
        ["nvidia", "nvidia_uvm"],
        [],
    ),
    "a branch's names": (
        ["updates/dkms/nvidia-tesla-535.ko", "updates/dkms/nvidia-tesla-535-peermem.ko"],
        ["nvidia", "nvidia_peermem"],
        [],
    ),
    "Ubuntu's prebuilt": (["kernel/nvidia-535-server/nvidia.ko"], ["nvidia"], []),
    "kmod packages": (["weak-updates/lustre/lnet.ko", "extra/gdrdrv.ko"], ["gdrdrv", "lnet"], []),
    "not built": ([], ["gdrdrv"], [f"no gdrdrv was built for {NEW}"]),
    "only the kernel's own": ([], ["mlx5_core"], ["the one that is loaded now comes from outside"]),
}


@pytest.mark.parametrize("case", MODULES)
def test_modules_that_are_loaded_now_have_to_be_there_for_the_new_kernel(node, case):
    built, names, problems = MODULES[case]
    call(node, "prepared")
    plant(node, kernel_files(NEW, built))
    answer = call(node, "armed", release=NEW, modules=names)
    assert bool(answer.get("failed")) is bool(problems)
    for part in problems:
        assert part in answer["msg"]


def test_a_failed_build_is_named_with_the_line_of_its_log(node):
    log = (
        f"DKMS make.log for nvidia-470.1 for kernel {NEW} (x86_64)\nFri Nov 20\nnv-mmap.c:333:14:"
        " error: implicit declaration\nmake: *** Error 2\n"
    )
    call(node, "prepared")
    plant(
        node,
        {
            "/var/lib/dkms/nvidia/470.1/build/make.log": log,
            "/var/lib/dkms/nvidia/470.1/source/": "",
        },
    )
    refused = call(node, "armed", release=NEW, modules=["nvidia"])
    assert (
        f"does not build for kernel {NEW}: nv-mmap.c:333:14: error: implicit declaration"
        in refused["msg"]
    )
    assert "/var/lib/dkms/nvidia/470.1/build/make.log line 3" in refused["msg"]


def test_systemd_boot_is_told_by_its_own_tool(tmp_path):
    node = plant_systemd_boot_node(tmp_path / "node")
    call(node, "prepared")
    assert boots(node) == (OLD, None)
    assert call(node, "armed", release=NEW, gpus=GPUS)["standing"] == "armed"
    assert boots(node) == (OLD, f"debian-{NEW}.conf")
    entry = node / f"boot/efi/loader/entries/debian-{NEW}.conf"
    assert "options root=/dev/sda2 quiet panic=30\n" in entry.read_text()
    (
        node
        / f"sys/firmware/efi/efivars/LoaderEntryOneShot-{'4a67b082-0a4c-41cf-b6c7-440b29bb8c4f'}"
    ).unlink()
    plant(node, running_files(NEW, "boot-2"))
    assert call(node, "confirmed", release=NEW, gpus=GPUS)["standing"] == "confirmed"
    assert boots(node) == (NEW, None)
    assert "panic" not in entry.read_text()


@pytest.mark.parametrize("counted", [OLD, NEW])
@pytest.mark.parametrize("counter", ["+3", "+2-1", "+0-3"])
def test_an_entry_that_systemd_boot_renames_at_each_start_is_not_tried(tmp_path, counted, counter):
    node = plant_systemd_boot_node(tmp_path / "node")
    entries = node / "boot/efi/loader/entries"
    (entries / f"debian-{counted}.conf").rename(entries / f"debian-{counted}{counter}.conf")
    before = tree(node)
    refused = call(node, "prepared") if counted == OLD else {}
    if counted == NEW:
        call(node, "prepared")
        before = tree(node)
        refused = call(node, "armed", release=NEW, gpus=GPUS)
    assert f"renames the boot entry debian-{counted}{counter}.conf" in refused["msg"]
    assert f"rename it to debian-{counted}.conf" in refused["msg"]
    assert tree(node) == before


def test_grub_with_loader_entries_is_told_by_its_environment_block(tmp_path):
    node = plant_bls_node(tmp_path / "node")
    call(node, "prepared")
    assert boots(node) == (OLD, None)
    assert call(node, "armed", release=NEW, gpus=GPUS)["standing"] == "armed"
    assert boots(node) == (OLD, f"abc-{NEW}")
    assert "panic=30" in (node / f"boot/loader/entries/abc-{NEW}.conf").read_text()
    call(node, "cancelled", why="no")
    assert boots(node) == (OLD, None)


@pytest.mark.parametrize(
    ("machine", "saved", "chosen"),
    [
        ("def", "abc-6.0", "def"),
        ("abc", "abc-6.0", "abc"),
        ("def", f"abc-{OLD}", "abc"),
        ("", "x", "abc"),
    ],
)
def test_of_two_entries_of_a_release_the_default_or_this_machines_counts(
    tmp_path, machine, saved, chosen
):
    node = plant_bls_node(tmp_path / "node")
    entry = f"version {OLD}\nlinux /vmlinuz-{OLD}\noptions root=/dev/sdb9\n"
    plant(
        node,
        {
            f"/boot/loader/entries/def-{OLD}.conf": entry,
            "/etc/machine-id": machine + "\n",
            "/boot/grub2/grubenv": grubenv(saved_entry=saved),
        },
    )
    call(node, "prepared")
    assert (
        parse_grubenv((node / "boot/grub2/grubenv").read_bytes())["saved_entry"]
        == f"{chosen}-{OLD}"
    )


def test_a_kernel_is_not_tried_where_kexec_would_take_the_boot_loaders_place(node):
    plant(node, {"/sys/kernel/kexec_loaded": "1\n"})
    assert "a kernel is loaded for kexec" in arm(node)["msg"]
    assert boots(node) == (OLD, None)
    plant(node, {"/sys/kernel/kexec_loaded": "0\n"})
    assert call(node, "armed", release=NEW, gpus=GPUS)["standing"] == "armed"
    guard = (node / "etc/unhang/boot-trial").read_text()
    assert guard.index("SYSTEMCTL_SKIP_AUTO_KEXEC=1") < guard.index("systemctl reboot")


def test_a_grub_that_does_not_read_our_part_tries_no_kernel_that_would_stay_after_a_panic(node):
    cfg = (
        (node / "boot/grub/grub.cfg")
        .read_text()
        .replace('set default="0"', 'set default="${saved_entry}"')
    )
    (node / "boot/grub/grub.cfg").write_text(cfg)
    tool = node.parent / "bin" / "chroot"
    tool.write_text("#!/bin/sh\nexit 0\n")  # a grub2-mkconfig that makes the same menu again
    assert "/boot/grub/grub.cfg lacks panic=30" in arm(node)["msg"]
    assert boots(node)[1] is None
    (node / "boot/grub/grub.cfg").write_text(cfg.replace(" quiet", " quiet panic=30"))
    assert call(node, "armed", release=NEW, gpus=GPUS)["standing"] == "armed"


def test_a_saved_state_brings_the_boot_default_back_to_the_letter(tmp_path):
    node = plant_grub_node(tmp_path / "node", kernels=(OLD,))
    folder = "/var/lib/unhang/states/20261120T070000Z-kernel"
    plant(
        node,
        {
            folder + "/state.json": json.dumps(
                {"schema": "unhang/saved-state/1", "id": folder[-22:], "steps": [], "folders": []}
            )
        },
    )
    cfg = grub_cfg([OLD])
    call(node, "prepared", state_id=folder[-23:])
    plant(node, kernel_files(NEW))
    call(node, "armed", release=NEW, gpus=GPUS)
    call(node, "prepared")
    started(node, NEW)
    call(node, "confirmed", release=NEW, gpus=GPUS)
    assert reboot_needed(str(node), folder) == OLD
    before = tree(node)
    assert [row["what"] for row in restore_boot(str(node), folder, True)]
    assert tree(node) == before
    restore_boot(str(node), folder, False)
    assert boots(node) == (OLD, None)  # the new kernel is still on the disk
    started(node, OLD, "boot-3")
    assert reboot_needed(str(node), folder) is None
    for path in kernel_files(NEW):
        (node / path.lstrip("/")).unlink()
    (node / f"lib/modules/{NEW}").rmdir()
    restore_boot(str(node), folder, False)
    assert (node / "boot/grub/grub.cfg").read_text() == cfg
    assert environment(node) == {"theirs": "kept"}
    assert not (node / "etc/default/grub.d/zz-unhang-boot-trial.cfg").exists()
    assert restore_boot(str(node), folder, False) == []
