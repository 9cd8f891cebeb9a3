"""The role kernel on a real machine under emulation. The new kernel does not boot, or only in part:
the machine returns to the old one by itself."""

from __future__ import annotations

import json

import pytest
from kernel_plays import GPUS, default_of


def record(machine):
    return json.loads(machine.shell("cat /var/lib/unhang/boot_trial.json"))


@pytest.mark.nightly
def test_a_kernel_whose_initrd_is_broken_leaves_the_machine_on_the_old_one_and_is_not_tried_again(
    image, prepared
):
    machine = prepared.machine
    machine.shell(
        f"dd if=/dev/urandom of=/boot/initrd.img-{image.new} bs=64k count=64 conv=notrunc"
        " status=none"
    )
    played = prepared.play(kernel_reboot=True)
    assert played.code != 0
    assert f"kernel {image.old} came up, not {image.new}" in played.output
    assert "Kernel panic" in machine.console()
    assert machine.shell("uname -r").strip() == image.old
    assert default_of(machine).startswith(image.old)
    assert record(machine)["status"] == "fell_back"
    again = prepared.play(kernel_reboot=True)
    assert again.code != 0
    assert "was tried and fell back" in again.output


def test_a_kernel_that_comes_up_without_its_network_is_left_by_the_node_itself(image, prepared):
    machine = prepared.machine
    # Its driver is removed from the new kernel's modules, as after a build for the wrong kernel.
    machine.shell(
        f"find /lib/modules/{image.new} -name 'virtio_net.ko*' -delete; depmod {image.new}"
    )
    played = prepared.play(kernel_reboot=True, kernel_confirm_within_s=120)
    assert played.code != 0
    assert f"{image.new} was not confirmed within 120 s after its start" in played.output
    assert f"unhang: {image.new} is on trial" in machine.console()
    assert machine.shell("uname -r").strip() == image.old
    assert record(machine)["status"] == "fell_back"


@pytest.mark.nightly
def test_a_kernel_under_which_a_gpu_is_gone_is_taken_back(image, prepared):
    machine = prepared.machine
    unit = (
        "[Unit]\nConditionKernelVersion={}\nBefore=ssh.service\n[Service]\nType=oneshot\nExecStart=/bin/cp"
        " /root/{}.json " + GPUS + "\n"
    )
    for name, release, layer in (
        ("lost", image.new, {"device_count": 1}),
        ("whole", image.old, {}),
    ):
        machine.write(f"/root/{name}.json", json.dumps({"base": "h200x2.json", **layer}))
        machine.write(f"/etc/systemd/system/{name}.service", unit.format(release, name))
        machine.shell(
            f"mkdir -p /etc/systemd/system/multi-user.target.wants; ln -s ../{name}.service"
            " /etc/systemd/system/multi-user.target.wants/"
        )
    played = prepared.play(kernel_reboot=True, kernel_settle_s=10)
    assert played.code != 0
    assert "of the 2 GPUs of before, 1 are gone: GPU-" in played.output
    assert machine.shell("uname -r").strip() == image.old
    assert record(machine)["status"] == "fell_back"
    assert "GPUs of before" in record(machine)["why"]
    assert f"Linux version {image.new}" in machine.console()
