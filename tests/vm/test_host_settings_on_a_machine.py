"""Modules of the role host_tuning that need a real machine: GRUB's menu is rebuilt, a real kernel
gets a parameter, a module is loaded now and at boot."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from fakes.role_play import read_play

DEADLINE_S = 3600
WANTED = [
    ("boot_parameter", {"name": "iommu", "parameters": ["iommu=pt"]}),
    ("host_setting", {"setting": "kernel_parameter", "name": "vm.swappiness", "value": "7"}),
    (
        "host_setting",
        {
            "setting": "kernel_module",
            "name": "dummy",
            "parameters": {"numdummies": 3},
            "at_boot": True,
        },
    ),
]
BOOTED = (
    "cat /proc/cmdline; sysctl -n vm.swappiness; ls /sys/class/net | grep -c ^dummy; cat"
    " /proc/sys/kernel/random/boot_id"
)
FILES = "find /etc /boot/grub /var/lib/unhang -type f -exec sha256sum {} + 2>/dev/null | sort"


@pytest.fixture
def play(fresh):
    """Plays the modules on the machine in this order, with the given `state` and further tasks."""
    machine = fresh.machine

    def run(*arguments, state="present", more=()):
        kept = (
            ("setting", "name")
            if state == "absent"
            else ("setting", "name", "value", "parameters", "at_boot")
        )
        tasks = [
            {
                "name": name,
                name: {**{key: options[key] for key in kept if key in options}, "state": state},
            }
            for name, options in WANTED
        ]
        path = machine.folder / "host.yml"
        path.write_text(
            json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [*tasks, *more]}])
        )
        _command, where = fresh.prepared((), {})  # it writes the inventory
        command = [
            sys.executable,
            "-m",
            "ansible.cli.playbook",
            str(path),
            "-i",
            str(machine.folder / "hosts.json"),
            *arguments,
        ]
        return read_play(
            subprocess.run(command, timeout=DEADLINE_S, capture_output=True, text=True, **where)
        )

    run.machine = machine
    return run


def test_what_is_set_holds_now_and_after_a_boot_and_is_taken_back(play):
    machine = play.machine
    before, untouched = machine.shell(BOOTED + "; :").splitlines(), machine.shell(FILES)
    foretold = play("--check", "--diff")
    assert machine.shell(FILES) == untouched
    applied = play()
    assert applied.changed == foretold.changed == {"vm": 3}
    command_line, swappiness, dummies, boot_id = machine.shell(BOOTED).splitlines()
    assert (command_line, swappiness, dummies, boot_id) == (before[0], "7", "3", before[3])
    assert "iommu=pt" in machine.shell("grep -m 1 '^[[:space:]]*linux' /boot/grub/grub.cfg")
    assert play().changed == {"vm": 0}

    assert (
        play(
            more=[
                {
                    "name": "boot",
                    "ansible.builtin.reboot": {"reboot_timeout": 3000, "connect_timeout": 60},
                }
            ]
        ).code
        == 0
    )
    command_line, swappiness, dummies, boot_id = machine.shell(BOOTED).splitlines()
    assert boot_id != before[3]
    assert ("iommu=pt" in command_line.split(), swappiness, dummies) == (True, "7", "3")

    assert play(state="absent").changed == {"vm": 3}
    assert machine.shell("sysctl -n vm.swappiness").strip() == before[1]
    assert machine.shell("grep -c iommu=pt /boot/grub/grub.cfg; :").strip() == "0"
    assert machine.shell("find /etc -name '*unhang*'") == ""
