"""Runs playbooks/audit.yml among the nodes of a test bed with ansible-playbook itself, and reads the run folder that it leaves."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path(sys.executable).parent
DEADLINE_S = 240


@dataclasses.dataclass(frozen=True)
class Audit:
    """One finished run. code: of the command; folder: the run folder."""

    code: int
    stdout: str
    stderr: str
    folder: pathlib.Path

    @functools.cached_property
    def findings(self):
        """The entries of findings.json."""
        return json.loads((self.folder / "findings.json").read_text())["findings"]

    def node(self, name):
        """The node's file as a value."""
        return json.loads((self.folder / "nodes" / f"{name}.json").read_text())

    def section(self, name, section):
        """One section of a node's facts."""
        return self.node(name)["facts"]["sections"][section]

    def rules(self, host=None, verdict="fail"):
        """Ids of the rules with this verdict, of one host or of all."""
        return sorted({entry["rule"] for entry in self.of(host, verdict)})

    def of(self, host=None, verdict="fail"):
        """Entries with this verdict that name the host."""
        return [entry for entry in self.findings if entry["verdict"] == verdict and (host is None or host in names_of(entry))]


def names_of(entry):
    """Hosts that a finding names."""
    return {entry.get("host"), *(entry.get("hosts") or [])} - {None}


def inventory_of(bed, groups, variables=None, host_variables=None):
    """An inventory for ansible-playbook, as JSON text. groups: {group: [node names]}; host_variables: {node name: {...}}."""
    common = {
        "ansible_user": "root",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_private_key_file": f"{bed.folder}/id_ed25519",
        "ansible_ssh_common_args": f"-F none -o UserKnownHostsFile={bed.folder}/known_hosts -o GlobalKnownHostsFile=/dev/null -o IdentitiesOnly=yes",
        "unhang_node_timeout_s": 60,
        **(variables or {}),
    }
    names = [name for members in groups.values() for name in members]
    hosts = {name: {"ansible_host": bed.nodes[name].address, **(host_variables or {}).get(name, {})} for name in names}
    children = {group: {"hosts": dict.fromkeys(members)} for group, members in groups.items()}
    return json.dumps({"all": {"hosts": hosts, "vars": common, "children": children}}, indent=1)


def environment_of(bed, work):
    """What Ansible needs and nothing of the user's own: a home, a folder for ssh's control sockets, the project's configuration."""
    home = pathlib.Path(work) / "home"
    home.mkdir(exist_ok=True)
    sockets = bed.folder / "sockets" / str(len(list((bed.folder / "sockets").glob("*"))))
    sockets.mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if name in ("LANG", "TZ", "CI")}
    return {
        **kept,
        "HOME": str(home),
        "PATH": f"{PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
        "ANSIBLE_LOCALHOST_WARNING": "False",
    }


def playbook_command(inventory, *arguments):
    """argv of the audit as a person types it."""
    return ["ansible-playbook", "playbooks/audit.yml", "-i", str(inventory), *arguments]


def run_audit(bed, work, inventory, *arguments, command=None, environment=None):
    """Run the audit to its end and return an Audit. inventory: text of inventory_of."""
    work = pathlib.Path(work)
    path = work / "hosts.json"
    path.write_text(inventory)
    folder = work / "run"
    argv = command or playbook_command(path, *arguments)
    environment = {**environment_of(bed, work), "UNHANG_NEW_RUN": str(folder), **(environment or {})}
    done = subprocess.run(
        bed.inside(argv), cwd=PROJECT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=DEADLINE_S
    )
    return Audit(done.returncode, done.stdout, done.stderr, folder)
