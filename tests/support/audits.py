"""Runs playbooks/audit.yml among the nodes of a test bed with ansible-playbook itself, and reads
the run folder that it writes."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import time

import yaml

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
        return [
            entry
            for entry in self.findings
            if entry["verdict"] == verdict and (host is None or host in names_of(entry))
        ]


def names_of(entry):
    """Hosts that a finding names."""
    return {entry.get("host"), *(entry.get("hosts") or [])} - {None}


def differences(before, after, schema=None, path=""):
    """Paths of facts that differ between two answers, without samples and counters."""
    if schema is None:
        schema = {"properties": load_schema()["properties"]["sections"]["properties"]}
    schema = resolved(schema)
    if schema.get("x-kind") in ("sample", "counter"):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties") or {})
            yield from differences(
                before.get(key),
                after.get(key),
                inner if isinstance(inner, dict) else {},
                f"{path}.{key}",
            )
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, schema.get("items", {}), f"{path}[{number}]")
    elif before != after:
        yield f"{path.lstrip('.')}: {before!r} then {after!r}"


@functools.cache
def load_schema():
    """The schema of node facts."""
    return yaml.safe_load(
        (PROJECT / "tools" / "unhang" / "core" / "schemas" / "node-facts-1.yaml").read_text(
            encoding="utf-8"
        )
    )


def resolved(schema):
    """The schema with its reference resolved; keys beside the reference apply too."""
    if "$ref" not in schema:
        return schema
    return {**resolved(load_schema()["$defs"][schema["$ref"].rsplit("/", 1)[1]]), **schema}


def wait_until(holds, what, deadline_s=DEADLINE_S):
    """Waits until `holds()` is true; fails with `what` after the deadline. It polls, because
    nothing announces the change."""
    until = time.monotonic() + deadline_s
    while not holds():
        if time.monotonic() > until:
            raise AssertionError(f"waited {deadline_s} s in vain until {what}")
        time.sleep(0.1)


def inventory_of(bed, groups, variables=None, host_variables=None):
    """An inventory for ansible-playbook, as JSON text. groups: {group: [node names]};
    host_variables: {node name: {...}}."""
    common = {
        "ansible_user": "root",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_private_key_file": f"{bed.folder}/id_ed25519",
        "ansible_ssh_common_args": (
            f"-F none -o UserKnownHostsFile={bed.folder}/known_hosts -o"
            " GlobalKnownHostsFile=/dev/null -o IdentitiesOnly=yes"
        ),
        "unhang_node_timeout_s": 60,
        **(variables or {}),
    }
    names = [name for members in groups.values() for name in members]
    hosts = {
        name: {"ansible_host": bed.nodes[name].address, **(host_variables or {}).get(name, {})}
        for name in names
    }
    children = {group: {"hosts": dict.fromkeys(members)} for group, members in groups.items()}
    return json.dumps({"all": {"hosts": hosts, "vars": common, "children": children}}, indent=1)


def environment_of(bed, work):
    """The environment that Ansible needs, without the user's own settings: a home, a folder for
    ssh's control sockets, the project's configuration."""
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
    """argv of the audit as a user types it."""
    return ["ansible-playbook", "playbooks/audit.yml", "-i", str(inventory), *arguments]


def run_audit(bed, work, inventory, *arguments, environment=None):
    """Run the audit to its end and return an Audit. inventory: text of inventory_of."""
    number = len(list(pathlib.Path(work).glob("audit-*")))
    work = pathlib.Path(work) / f"audit-{number}"
    work.mkdir()
    path = work / "hosts.json"
    path.write_text(inventory)
    folder = work / "run"
    environment = {
        **environment_of(bed, work),
        "UNHANG_NEW_RUN": str(folder),
        **(environment or {}),
    }
    return run(bed, playbook_command(path, *arguments), environment, folder)


def run(bed, command, environment, folder):
    """Run a command inside the bed and from the project's folder; folder: of its run folder."""
    captured = {
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "text": True,
        "errors": "replace",
    }
    done = subprocess.run(
        bed.inside(command, PROJECT), env=environment, timeout=DEADLINE_S, **captured
    )
    assert folder.is_dir(), (
        f"no run folder came out; code {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    sys.stdout.write(f"{done.stdout}\n{done.stderr}\n")  # pytest shows it when a test fails
    return Audit(done.returncode, done.stdout, done.stderr, folder)
