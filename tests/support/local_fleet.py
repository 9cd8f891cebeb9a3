"""Real ansible-playbook on local connections; a stand-in for the node's Python interpreter prints
the planned output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from unhang.core.ansible import ansible_env, packed_pynvml
from unhang_node.base.version import VERSION

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240
# The environment without the caller's settings of Ansible, unhang and Python.
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("ANSIBLE_", "UNHANG_", "PYTHON"))
}
START = (
    "import sys; sys.path[:0] = sys.argv[1:3]; del sys.argv[1:3]; from unhang.cli import main;"
    " sys.exit(main())"
)

ANY_FACTS = {
    "schema": "unhang/node-facts/1",
    "collector": {"version": VERSION, "collected_via": "ansible"},
    "sections": {"node": {"probe": {"status": "ok"}, "hostname": "planted"}},
}


def envelope(**more):
    """The output of the module: one JSON line."""
    return json.dumps({"changed": False, "node_facts": json.dumps(ANY_FACTS), **more})


@dataclass
class Fleet:
    """Hosts of one test and the folder with all their files."""

    folder: Path
    hosts: dict = field(default_factory=dict)
    groups: dict = field(default_factory=dict)

    def answering(self, name, text, *, code=0, errors=""):
        """A host whose Python prints `text`, whatever it gets; asked for its version it reports a
        supported one."""
        return self.interpreter(name, self._planted(name, text, code, errors))

    def interpreter(self, name, script):
        """A host whose Python is this shell script."""
        path = self.folder / f"python-{len(self.hosts)}"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        return self.host(name, ansible_python_interpreter=str(path))

    def host(self, name, **variables):
        """A host with a local connection, unless the variables set another."""
        self.hosts[name] = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            **variables,
        }
        return name

    def _planted(self, name, text, code, errors):
        answer = self.folder / f"answer-{len(self.hosts)}"
        answer.write_bytes(
            text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        )
        return (
            f'[ "$1" = -c ] && exec {sys.executable} "$@"\ncat >/dev/null\ncat'
            f" '{answer}'\nprintf '%s' '{errors}' >&2\nexit {code}\n"
        )

    @property
    def inventory(self):
        """Writes the inventory file again."""
        path = self.folder / "hosts.yml"
        groups = {
            name: {"hosts": {host: {} for host in hosts}} for name, hosts in self.groups.items()
        }
        path.write_text(yaml.safe_dump({"all": {"hosts": self.hosts, "children": groups}}))
        return path

    @property
    def runs(self):
        """The folder of the runs."""
        return self.folder / "runs"

    def environment(self, **more):
        """The environment that `unhang` sets, without the caller's settings of Ansible."""
        mine = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANSIBLE_", "UNHANG_"))
        }
        named = {
            "UNHANG_RUNS": str(self.runs),
            "UNHANG_JUDGE": "0",
            "ANSIBLE_HOME": str(self.folder / "home"),
            "ANSIBLE_LOCAL_TEMP": str(self.folder / "temp"),
        }
        return {**ansible_env.ansible_environment(PROJECT, mine), **named, **more}

    def play(self, *arguments, playbook=PROJECT / "playbooks" / "audit.yml", environment=None):
        """A finished ansible-playbook: returncode, stdout, stderr."""
        packed_pynvml.link_pynvml(PROJECT)
        command = [
            ansible_env.ansible_program("ansible-playbook"),
            str(playbook),
            "-i",
            str(self.inventory),
            *arguments,
        ]
        return run(command, self.environment(**(environment or {})), self.folder)

    def nodes(self):
        """{host: node document} of the newest run."""
        return {
            node["host"]: node
            for node in map(read, (self.runs / "latest" / "nodes").glob("*.json"))
        }

    def run_document(self):
        """run.json of the newest run."""
        return read(self.runs / "latest" / "run.json")


def unhang_argv(*arguments):
    """argv of unhang as its own process, which gets neither PYTHONPATH nor an installation."""
    return [
        sys.executable,
        "-P",
        "-c",
        START,
        PROJECT / "tools",
        PROJECT / "module_utils",
        *arguments,
    ]


def run(command, environment, folder):
    """A finished command, its output as text."""
    return subprocess.run(
        list(map(str, command)),
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        timeout=DEADLINE_S,
    )


def read(path):
    """Reads a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def fleet(tmp_path):
    """An empty fleet."""
    return Fleet(tmp_path)


@pytest.fixture(scope="module")
def shared_fleet(tmp_path_factory):
    """One fleet for all tests of a file."""
    return Fleet(tmp_path_factory.mktemp("fleet"))
