"""Runs the project's playbooks that change nodes over ssh on test nodes, as a person runs them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import audits
from fakes.role_play import read_play
from under_way import under_way


def command_of(fleet, playbook, hosts, policy, arguments, variables, host_variables=None):
    """(argv, environment) of one playbook over the hosts, each in a work folder of its own."""
    inventory = inventory_for(fleet, hosts, policy, host_variables)
    argv = ["ansible-playbook", str(playbook), "-i", str(inventory), "-e", json.dumps(variables), *arguments]
    return fleet.bed.inside(argv, audits.PROJECT), environment_for(fleet, inventory.parent)


def inventory_for(fleet, hosts, policy, host_variables=None, **variables):
    """The file of a new inventory, in a folder of its own. variables: of all hosts."""
    work = fleet.work / f"playbook-{len(list(fleet.work.glob('playbook-*')))}"
    work.mkdir()
    inventory = work / "hosts.json"
    inventory.write_text(audits.inventory_of(fleet.bed, {"training": list(hosts)}, {"unhang_policy": policy, **variables}, host_variables))
    return inventory


def environment_for(fleet, work):
    """What Ansible and `unhang` are given, and nothing of the user's own."""
    return {
        **audits.environment_of(fleet.bed, work),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_NOCOLOR": "1",
        "UNHANG_RUNS": str(fleet.work / "runs"),
        "UNHANG_JUDGE": "0",  # the report at the end; what the playbooks go by they have judged themselves
    }


def run_typed(fleet, argv):
    """Played of a command of a page (typed_commands.as_typed) whose inventory is one of inventory_for()."""
    inventory = Path(argv[argv.index("-i") + 1])
    program = [sys.executable, "-P", "-m", *argv] if argv[0] == "unhang" else argv
    captured = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace", "timeout": audits.DEADLINE_S}
    command = fleet.bed.inside(list(map(str, program)), audits.PROJECT)
    return read_play(subprocess.run(command, env=environment_for(fleet, inventory.parent), check=False, **captured))


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
