"""Applies one role with the real ansible-playbook and reads its recap."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240
_RECAP = re.compile(r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.M)


@dataclasses.dataclass(frozen=True)
class Played:
    """A finished play. changed, failed: numbers by host."""

    code: int
    output: str
    changed: dict
    failed: dict


def write_play(folder, role, hosts="all"):
    """A playbook of one role."""
    path = Path(folder) / f"{role}.yml"
    path.write_text(
        json.dumps(
            [{"name": role, "hosts": hosts, "gather_facts": False, "roles": [{"role": role}]}]
        )
    )
    return path


def read_play(done):
    """Played of a finished process."""
    rows = {host: numbers for host, *numbers in _RECAP.findall(done.stdout)}
    output = f"{done.stdout}\n{done.stderr}"
    sys.stdout.write(output + "\n")  # pytest shows it when a test fails
    return Played(
        done.returncode,
        output,
        {host: int(row[1]) for host, row in rows.items()},
        {host: int(row[3]) + int(row[2]) for host, row in rows.items()},
    )


def environment(folder):
    """Ansible's environment, without the caller's own settings."""
    kept = {
        name: value for name, value in os.environ.items() if name in ("LANG", "TZ", "CI", "PATH")
    }
    more = {
        "HOME": str(folder),
        "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
        "ANSIBLE_NOCOLOR": "1",
    }
    return {
        **kept,
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_LOCALHOST_WARNING": "False",
        **more,
        "PATH": f"{Path(sys.executable).parent}:{kept.get('PATH', '')}",
    }


def play_here(folder, role, variables, *arguments):
    """Runs the role on this machine, without a connection: only for planted roots, whose folder the
    variables name."""
    inventory = Path(folder) / "hosts.json"
    host = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        **variables,
    }
    inventory.write_text(json.dumps({"all": {"hosts": {"planted": host}}}))
    command = ["ansible-playbook", str(write_play(folder, role)), "-i", str(inventory), *arguments]
    options = {
        "cwd": PROJECT,
        "env": environment(folder),
        "capture_output": True,
        "text": True,
        "timeout": DEADLINE_S,
        "stdin": subprocess.DEVNULL,
    }
    return read_play(subprocess.run(command, **options))
