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


def answer_of(argv, environment):
    """A command in the project's folder, without input, when it has ended."""
    return subprocess.run(
        argv, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=DEADLINE_S,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


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


def run_book(folder, book, *arguments, **more):
    """Plays it for the hosts of the folder's hosts.json. more: of Ansible's environment."""
    command = ["ansible-playbook", str(book), "-i", f"{folder}/hosts.json", *map(str, arguments)]
    options = {"cwd": PROJECT, "env": {**environment(folder), **more}, "capture_output": True}
    options |= {"text": True, "timeout": DEADLINE_S, "stdin": subprocess.DEVNULL}
    return read_play(subprocess.run(command, **options))


def write_hosts(folder, hosts):
    """An inventory of {name: variables}, all of which are this machine, without a connection."""
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    rows = {name: {**local, **own} for name, own in hosts.items()}
    (Path(folder) / "hosts.json").write_text(json.dumps({"all": {"hosts": rows}}))


def play_tasks(folder, hosts, *tasks, arguments=(), **more):
    """Plays these tasks; hosts: as for write_hosts."""
    write_hosts(folder, hosts)
    book = [{"hosts": "all", "gather_facts": False, "tasks": tasks}]
    (Path(folder) / "play.yml").write_text(json.dumps(book))
    return run_book(folder, f"{folder}/play.yml", *arguments, **more)


def drain_tasks(folder, step):
    """One step of the role drain, whose result is in the folder's said.json afterwards."""
    told = {
        "name": "Tell",
        "ansible.builtin.copy": {
            "content": "{{ drain_result | default({}) | to_json }}",
            "dest": f"{folder}/said.json",
            "mode": "0600",
        },
        "check_mode": False,
        "changed_when": False,
    }
    task = {"name": step, "ansible.builtin.include_role": {"name": "drain", "tasks_from": step}}
    return [{"name": "Step", "block": [task], "always": [told]}]


def play_here(folder, role, variables, *arguments):
    """Runs the role on this machine: only for planted roots, whose folder the variables name."""
    write_hosts(folder, {"planted": variables})
    return run_book(folder, write_play(folder, role), *arguments)
