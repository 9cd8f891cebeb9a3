"""Faults that keep the role kernel from booting a kernel: power lost while dpkg works, a module
that does not build, a GRUB that cannot write, a full disk."""

from __future__ import annotations

import pytest
from kernel_plays import boots, default_of


@pytest.mark.nightly
def test_power_that_is_lost_in_the_middle_of_dpkg_leaves_a_machine_that_boots_and_the_next_run_finishes(
    image, fresh
):
    machine = fresh.machine
    running = fresh.start()
    machine.wait_until(
        f"test -e /boot/vmlinuz-{image.new} -o -e /boot/vmlinuz-{image.new}.dpkg-new",
        "the kernel is being unpacked",
    )
    machine.power_off()
    running.kill()
    running.wait()
    machine.switch_on()
    machine.wait_for_ssh()
    assert machine.shell("uname -r").strip() == image.old
    assert machine.shell("dpkg --audit").strip() != ""
    played = fresh.play()
    assert played.code == 0
    assert "continuing with state" in played.output
    assert machine.shell("dpkg --audit").strip() == ""
    assert default_of(machine).startswith(image.old)
    assert f"vmtest/1.0, {image.new}" in machine.shell("dkms status")


def test_a_preview_writes_nothing_and_a_module_that_does_not_build_keeps_the_kernel_from_booting(
    image, fresh
):
    machine = fresh.machine
    machine.shell("touch /root/mark")
    preview = fresh.play("--check", "--diff", kernel_reboot=True)
    assert preview.code == 0
    assert f"+linux-image-{image.new}" in preview.output
    assert (
        machine.shell("find /etc /boot /usr /var/lib -xdev -newer /root/mark -type f").split() == []
    )
    machine.shell("echo '#error too old for this kernel' >>/usr/src/vmtest-1.0/vmtest.c")
    played = fresh.play(kernel_reboot=True)
    assert played.code != 0
    assert f"does not build for kernel {image.new}" in played.output
    assert "too old for this kernel" in played.output
    assert machine.shell("uname -r").strip() == image.old
    assert default_of(machine).startswith(image.old)
    assert "next_entry" not in boots(machine)


@pytest.mark.nightly
def test_where_grub_cannot_write_the_role_refuses_and_writes_nothing(fresh):
    machine = fresh.machine
    machine.shell(
        "mkfs.btrfs -q /dev/vdb && mount /dev/vdb /mnt && cp -a /boot/. /mnt/ && umount /mnt &&"
        " mount /dev/vdb /boot"
    )
    looked_at = "find /boot /etc /var/lib/dpkg /lib/modules -xdev -newer /root/mark -type f"
    machine.shell("touch /root/mark")
    played = fresh.play(kernel_reboot=True)
    assert played.code != 0
    assert "btrfs" in played.output
    assert "again and again" in played.output
    assert machine.shell(looked_at).split() == []


@pytest.mark.nightly
def test_where_the_root_file_system_is_full_the_role_refuses_and_the_boot_loader_is_told_what_it_was_told(
    image, fresh
):
    machine = fresh.machine
    machine.shell("fallocate -l $(($(df --output=avail -B1 / | tail -n 1) - 200000000)) /fill")
    played = fresh.play(kernel_reboot=True)
    assert played.code != 0
    assert "the file system of / and " in played.output
    assert boots(machine) == {}
    assert machine.shell("ls /boot/vmlinuz-*; dpkg --audit").split() == [
        f"/boot/vmlinuz-{image.old}"
    ]
