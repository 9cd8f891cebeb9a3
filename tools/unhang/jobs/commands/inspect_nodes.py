"""The evidence of nodes that Ansible reaches, for `unhang inspect -i` and `--host`: runs
playbooks/inspect.yml and reads what the nodes answered. The command line hands it to inspect, which
needs no Ansible."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from unhang.core import project
from unhang.core.ansible import ansible_env, packed_pynvml
from unhang.core.ansible.play_process import play
from unhang.core.ansible.playbook_command import inventories_of, limit_arguments, why_no_run
from unhang.core.commands.counted_nodes import counting
from unhang.core.errors import UserError
from unhang.core.nodeset import expand_hosts
from unhang.core.strict_json import NotStrict, parse_strictly, read_bounded
from unhang.jobs.commands.inspect import InspectOptions
from unhang.jobs.inspect.bundle import MOST_BYTES, checked, unanswered

OF_THE_MODULE = ("slurm_job", "container", "gap_s", "slow", "without", "py_spy", "kernel_log")


def node_documents(asked: InspectOptions, options: dict[str, Any]) -> list[dict[str, Any]]:
    """One document for each node; of a node without an answer one that says why. Raises UserError
    if no node was asked."""
    if options["pids"]:
        raise UserError(
            "--pid cannot be given with --host or --inventory, because numbers of processes differ"
            " from node to node; --slurm-job takes a job"
        )
    home = project.find_project()
    packed_pynvml.link_pynvml(home)
    inventories = (
        inventories_of(asked.inventory, home)
        if asked.inventory
        else [",".join(expand_hosts(asked.host)) + ","]
    )
    limit = ",".join(asked.host) if asked.inventory else None
    with (
        tempfile.TemporaryDirectory(prefix="unhang-inspect-") as folder,
        limit_arguments(limit) as limited,
    ):
        command = [
            ansible_env.ansible_program("ansible-playbook"),
            str(home / "playbooks" / "inspect.yml"),
            *limited,
            "--forks",
            str(asked.forks),
        ]
        command += [word for inventory in inventories for word in ("-i", inventory)]
        given = {
            "inspect_folder": folder,
            "inspect_options": {name: options[name] for name in OF_THE_MODULE if options[name]},
        }
        answers = Path(folder, "nodes")
        answers.mkdir()
        with counting(Path(folder)):
            played = play(
                [*command, "--extra-vars", json.dumps(given), *asked.ansible],
                _environment(home),
            )
        found = [_document(path) for path in sorted(answers.glob("*.json"))]
    if played.stopped:
        raise UserError("it was stopped by hand")
    if not found:
        raise UserError(why_no_run(played.output, inventories, limit))
    return found


def _environment(home: Path) -> dict[str, str]:
    found = ansible_env.ansible_environment(home, os.environ)
    return {
        **found,
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False",
        "ANSIBLE_HOST_PATTERN_MISMATCH": "error",
    }


def _document(path: Path) -> dict[str, Any]:
    """What one node answered, as its own evidence; the name is that of the inventory."""
    try:
        answer = parse_strictly(read_bounded(path, MOST_BYTES), half_characters=True)
    except NotStrict as problem:
        answer = {"problem": str(problem)}
    host, evidence = str(answer.get("host") or path.stem), answer.get("evidence")
    try:
        return (
            {**checked(evidence.encode("utf-8", "replace"), host), "asked_as": host}
            if isinstance(evidence, str)
            else unanswered(host, answer.get("problem"))
        )
    except UserError as problem:
        return unanswered(host, problem)
