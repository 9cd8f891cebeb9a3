"""Runs the project's playbooks that change nodes over ssh on test nodes, as a user does."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import audits
from controller_process import under_way
from fakes.role_play import read_play


def command_of(fleet, playbook, hosts, policy, arguments, variables, host_variables=None):
    """(argv, environment) of one playbook for the hosts, with a new work folder for each call."""
    inventory = inventory_for(fleet, hosts, policy, host_variables)
    argv = [
        "ansible-playbook",
        str(playbook),
        "-i",
        str(inventory),
        "-e",
        json.dumps(variables),
        *arguments,
    ]
    return fleet.bed.inside(argv, audits.PROJECT), environment_for(fleet, inventory.parent)


def inventory_for(fleet, hosts, policy, host_variables=None, **variables):
    """The file of a new inventory, in a folder of its own. variables: of all hosts."""
    work = fleet.work / f"playbook-{len(list(fleet.work.glob('playbook-*')))}"
    work.mkdir()
    inventory = work / "hosts.json"
    inventory.write_text(
        audits.inventory_of(
            fleet.bed,
            {"training": list(hosts)},
            {"unhang_policy": policy, **variables},
            host_variables,
        )
    )
    return inventory


def environment_for(fleet, work):
    """The environment that Ansible and `unhang` need, without the user's own settings."""
    return {
        **audits.environment_of(fleet.bed, work),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_NOCOLOR": "1",
        "UNHANG_RUNS": str(fleet.work / "runs"),
        # the report at the end; the playbooks have judged what they need themselves
        "UNHANG_JUDGE": "0",
    }


def planned_run(fleet, *options):
    """The folder of the latest audit, judged and planned with these options."""
    run = (fleet.work / "runs" / "latest").resolve()
    environment = audits.environment_of(fleet.bed, fleet.work)
    for argv in (["judge", str(run)], ["plan", str(run), *options]):
        words = [sys.executable, "-P", "-m", "unhang", *argv]
        done = audits.run(fleet.bed, words, environment, run)
        assert done.code in (0, 1), done.stderr
    return run


def run_typed(fleet, argv):
    """Played of a command of a page (documented_command.as_typed) whose inventory is one of
    inventory_for()."""
    inventory = Path(argv[argv.index("-i") + 1])
    program = [sys.executable, "-P", "-m", *argv] if argv[0] == "unhang" else argv
    captured = {
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "text": True,
        "errors": "replace",
        "timeout": audits.DEADLINE_S,
    }
    command = fleet.bed.inside(list(map(str, program)), audits.PROJECT)
    return read_play(
        subprocess.run(
            command, env=environment_for(fleet, inventory.parent), check=False, **captured
        )
    )


def play(
    fleet,
    playbook,
    hosts,
    policy,
    *arguments,
    host_variables=None,
    deadline_s=audits.DEADLINE_S,
    **variables,
):
    """Played of a finished playbook."""
    command, environment = command_of(
        fleet, playbook, hosts, policy, arguments, variables, host_variables
    )
    captured = {
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "text": True,
        "errors": "replace",
    }
    return read_play(subprocess.run(command, env=environment, timeout=deadline_s, **captured))


@contextlib.contextmanager
def playing(fleet, playbook, hosts, policy, *arguments, **variables):
    """A running playbook, in a process group of its own; killed when the block ends, so that the
    controller ends without a message to any node."""
    command, environment = command_of(fleet, playbook, hosts, policy, arguments, variables)
    with (
        (fleet.work / "playing.log").open("w+") as log,
        under_way(command, environment, log) as process,
    ):
        yield process
