"""The ways in which smoke tests reach the nodes: ssh options, and the playbook."""

from __future__ import annotations

import json
import subprocess
import sys

import audits
import torch_in_nodes
from four_nodes import NAMES

DEADLINE_S = 280


def ssh_config(bed, folder, without=()):
    """An ssh configuration for the nodes by name. without: nodes whose host key is unknown."""
    known = folder / "known_hosts"
    known.write_text(
        "".join(
            f"{node.address} {node.host_key}\n"
            for name, node in bed.nodes.items()
            if name not in without
        )
    )
    lines = []
    for name, node in bed.nodes.items():
        lines += [
            f"Host {name}",
            f"  HostName {node.address}",
            "  User root",
            f"  IdentityFile {bed.folder}/id_ed25519",
            f"  UserKnownHostsFile {known}",
        ]
    path = folder / "ssh_config"
    path.write_text("\n".join(lines) + "\n")
    return path


def command(fleet, *options, playbook="playbooks/smoke.yml", inventory=None, extra=None):
    """argv of the playbook. options: for `unhang smoke`; extra: variables."""
    hosts = fleet.work / "hosts.json"
    hosts.write_text(inventory or audits.inventory_of(fleet.bed, {"training": list(NAMES)}))
    argv = [
        "ansible-playbook",
        playbook,
        "-i",
        str(hosts),
        "-e",
        json.dumps({**variables_of(fleet, *options), **(extra or {})}),
    ]
    return fleet.bed.inside(argv, audits.PROJECT)


def variables_of(fleet, *options):
    """Variables of a smoke test that is small and has long limits. options: for `unhang smoke`."""
    arguments = [
        "--backend",
        "gloo",
        "--nproc",
        "1",
        "--max-size",
        "64K",
        "--sizes",
        "16K",
        "--step-timeout",
        "60",
        *options,
    ]
    return {
        "smoke_test_python": str(torch_in_nodes.PYTHON),
        "smoke_test_arguments": arguments,
        "smoke_test_results": str(fleet.work / "results"),
    }


def play(fleet, *options, **more):
    """(code, result by name, all output) of the playbook."""
    return run(fleet, command(fleet, *options, **more))


def play_typed(fleet, argv):
    """The same for a command of a page (documented_command.as_typed); its inventory sets what the
    command does not: variables_of()."""
    return run(fleet, fleet.bed.inside(list(map(str, argv)), audits.PROJECT))


def run(fleet, argv):
    """(code, result by name, all output) of a command among the nodes."""
    environment = audits.environment_of(fleet.bed, fleet.work)
    captured = {
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "text": True,
        "errors": "replace",
    }
    done = subprocess.run(argv, env=environment, timeout=DEADLINE_S, check=False, **captured)
    sys.stdout.write(f"{done.stdout[-9000:]}\n{done.stderr[-3000:]}\n")
    return done.returncode, results_of(fleet), done.stdout


def results_of(fleet):
    """The results in the folder, by the names of their folders."""
    found = sorted((fleet.work / "results").glob("*/*/result.json"))
    return {path.parent.name: json.loads(path.read_text()) for path in found}
