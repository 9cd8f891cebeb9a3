"""remediate.yml and rollback.yml with the role kernel on a real machine under emulation: a new
kernel is tried, kept and rolled back."""

from __future__ import annotations

import json

from kernel_plays import boots, default_of


def test_power_that_is_lost_before_the_reboot_starts_the_old_kernel_remediate_brings_the_new_one_and_rollback_takes_it_back(
    image, prepared
):
    machine = prepared.machine
    cut_power(machine)
    assert machine.shell("uname -r").strip() == image.old

    starts = machine.console().count("Linux version")
    played, run = prepared.run(
        "playbooks/remediate.yml", unhang_apply=True, unhang_reboot=True, unhang_roles=["kernel"]
    )
    assert played.code == 0
    proof = json.loads((run / "remediation-vm.json").read_text())
    assert (proof["healthy"], proof["reasons"]) == (True, [])
    assert "policy-kernel-version" in proof["gone"]
    assert machine.console().count("Linux version") == starts + 1  # the trial was the only boot
    assert machine.shell("uname -r; lsmod | grep -o ^vmtest").split() == [image.new, "vmtest"]
    assert default_of(machine).startswith(image.new)
    assert "next_entry" not in boots(machine)
    assert (
        machine.shell("ls /etc/unhang 2>&1 || true").strip().endswith("No such file or directory")
    )
    again = prepared.play(kernel_reboot=True)
    assert (again.code, again.changed) == (0, {"vm": 0})
    cut_power(machine)
    assert machine.shell("uname -r").strip() == image.new

    first = machine.shell("ls /var/lib/unhang/states").split()[0]
    back, _run = prepared.run(
        "playbooks/rollback.yml", unhang_apply=True, unhang_reboot=True, unhang_state=first
    )
    assert back.code == 0
    assert machine.shell("uname -r").strip() == image.old
    # The boot loader has exactly its old settings, and the kernel is gone.
    assert boots(machine) == {}
    assert machine.shell("ls /boot/vmlinuz-*; dpkg --audit").split() == [
        f"/boot/vmlinuz-{image.old}"
    ]
    assert prepared.audit() == ["policy-kernel-version"]
    cut_power(machine)
    assert machine.shell("uname -r").strip() == image.old


def cut_power(machine):
    machine.power_off()
    machine.switch_on()
    machine.wait_for_ssh()
