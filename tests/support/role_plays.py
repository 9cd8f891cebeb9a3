"""Applies a role to a test node over ssh with ansible-playbook, and gives the content of a node's
files."""

from __future__ import annotations

import subprocess

import audits
from fakes.role_play import read_play, write_play

LOOKED_AT = (
    "/etc",
    "/var/lib/dpkg/status",
    "/var/lib/apt/extended_states",
    "/var/lib/unhang",
    "/usr/local",
    "/root",
    "/run/systemd/system",
)


def command_of_role(fleet, role, name, policy, *arguments, **variables):
    """(argv, environment) of one role on one node."""
    work = fleet.work / f"play-{len(list(fleet.work.glob('play-*')))}"
    work.mkdir()
    inventory = work / "hosts.json"
    inventory.write_text(
        audits.inventory_of(fleet.bed, {"training": [name]}, {"unhang_policy": policy, **variables})
    )
    environment = {
        **audits.environment_of(fleet.bed, work),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_NOCOLOR": "1",
    }
    return fleet.bed.inside(
        ["ansible-playbook", str(write_play(work, role)), "-i", str(inventory), *arguments],
        audits.PROJECT,
    ), environment


def play_role(fleet, role, name, policy, *arguments, deadline_s=audits.DEADLINE_S, **variables):
    """Played of one role on one node."""
    command, environment = command_of_role(fleet, role, name, policy, *arguments, **variables)
    captured = {
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "text": True,
        "errors": "replace",
    }
    return read_play(subprocess.run(command, env=environment, timeout=deadline_s, **captured))


def state_of(fleet, name):
    """Names, modes, owners and checksums of all files that a role could have touched; without
    mounts, such as the tests' own Python."""
    places = " ".join(LOOKED_AT)
    # The lock's counter rises whenever the node is locked, and is no change; its folder exists from
    # then on.
    others = "grep -v -e '^/var/lib/unhang [0-9]' -e '/var/lib/unhang/fencing.json'"
    listed = fleet.shell(
        name, f"find {places} -xdev -printf '%p %m %u %l\\n' 2>/dev/null | {others} | sort"
    )
    return listed + fleet.shell(
        name, f"find {places} -xdev -type f -exec sha256sum {{}} + 2>/dev/null | {others} | sort"
    )
