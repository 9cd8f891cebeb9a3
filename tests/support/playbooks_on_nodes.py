"""Runs the project's playbooks that change nodes over ssh on test nodes, as a person runs them."""

from __future__ import annotations

import contextlib
import json
import subprocess

import audits
from fakes.role_play import read_play
from under_way import under_way


def command_of(fleet, playbook, hosts, policy, arguments, variables, host_variables=None):
    """(argv, environment) of one playbook over the hosts, each in a work folder of its own."""
    work = fleet.work / f"playbook-{len(list(fleet.work.glob('playbook-*')))}"
    work.mkdir()
    inventory = work / "hosts.json"
    inventory.write_text(audits.inventory_of(fleet.bed, {"training": list(hosts)}, {"unhang_policy": policy}, host_variables))
    environment = {
        **audits.environment_of(fleet.bed, work),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_NOCOLOR": "1",
        "UNHANG_RUNS": str(fleet.work / "runs"),
        "UNHANG_JUDGE": "0",  # the report at the end; what the playbooks go by they have judged themselves
    }
    return fleet.bed.inside(["ansible-playbook", str(playbook), "-i", str(inventory), "-e", json.dumps(variables), *arguments], audits.PROJECT), environment


def play(fleet, playbook, hosts, policy, *arguments, host_variables=None, deadline_s=audits.DEADLINE_S, **variables):
    """Played of a finished playbook."""
    command, environment = command_of(fleet, playbook, hosts, policy, arguments, variables, host_variables)
    captured = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    return read_play(subprocess.run(command, env=environment, timeout=deadline_s, **captured))


@contextlib.contextmanager
def playing(fleet, playbook, hosts, policy, *arguments, **variables):
    """A playbook under way, in a process group of its own; killed when the block ends, as a controller dies: without a word to anybody."""
    command, environment = command_of(fleet, playbook, hosts, policy, arguments, variables)
    with (fleet.work / "playing.log").open("w+") as log, under_way(command, environment, log) as process:
        yield process
