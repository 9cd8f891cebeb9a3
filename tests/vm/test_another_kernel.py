"""A machine that boots a kernel other than the one that the role kernel selected: a third one,
which somebody selected at the last moment."""

from __future__ import annotations

import json

import pytest
from kernel_plays import boots, default_of

# At the machine's shutdown, so after the role has selected the next boot, another kernel is
# selected.
UNIT = """[Unit]
ConditionKernelVersion={old}
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
ExecStop=/usr/sbin/grub-reboot "Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux {other}"
"""


@pytest.mark.nightly
def test_a_machine_that_comes_back_on_a_third_kernel_is_told_keeps_the_old_one_as_default_and_the_next_run_finishes(
    image, prepared
):
    machine = prepared.machine
    machine.shell(
        "mv /srv/other/boot/* /boot/ && mv /srv/other/usr/lib/modules/* /usr/lib/modules/ &&"
        " update-grub"
    )
    machine.write(
        "/etc/systemd/system/somebody.service", UNIT.format(old=image.old, other=image.other)
    )
    machine.shell("systemctl start somebody")
    played = prepared.play(kernel_reboot=True)
    assert played.code != 0
    assert f"kernel {image.other} came up, not {image.new}" in played.output
    assert f"back on {image.other}, which is neither {image.new} nor {image.old}" in played.output
    assert machine.shell("uname -r").strip() == image.other
    assert default_of(machine).startswith(image.old)
    assert "next_entry" not in boots(machine)
    record = json.loads(machine.shell("cat /var/lib/unhang/boot_trial.json"))
    assert (record["status"], record["old_release"]) == ("fell_back", image.old)
    state = json.loads(
        machine.shell("cat $(ls -d /var/lib/unhang/states/* | tail -n 1)/state.json")
    )
    assert state["status"] == "failed"
    assert image.other in state["message"]

    finished = prepared.play(kernel_reboot=True, kernel_retry=True)
    assert finished.code == 0
    assert "continuing with state" in finished.output
    assert machine.shell("uname -r").strip() == image.new
    assert default_of(machine).startswith(image.new)
    assert prepared.play(kernel_reboot=True).changed == {"vm": 0}
