"""Checks the tasks of SkyPilot and dstack, which run one script on each of several nodes. Text in,
values out."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from unhang.core.text import counted
from unhang.jobs.job_files import Finding
from unhang.jobs.lint.launch_checks import check_commands
from unhang.jobs.lint.launches import LAUNCHER, TORCHRUN, Command, read_commands
from unhang.jobs.lint.yaml_nodes import children_of, fields_of, number_of, read_yaml

SKYPILOT = "https://docs.skypilot.co/en/latest/running-jobs/distributed-jobs.html"
DSTACK = "https://dstack.ai/docs/concepts/tasks/#distributed-tasks"
_TOOLS = (
    (
        "num_nodes",
        "run",
        "SKYPILOT_NUM_NODES",
        "SKYPILOT_NODE_RANK",
        '$(echo "$SKYPILOT_NODE_IPS" | head -n1)',
        SKYPILOT,
    ),
    ("nodes", "commands", "DSTACK_NODES_NUM", "DSTACK_NODE_RANK", "$DSTACK_MASTER_NODE_IP", DSTACK),
)  # fields of the number of nodes and of the script, variables of the number and of the rank, address of the first node, source  # noqa: E501
_CONDITION = re.compile(r"^\s{0,40}(?:if|case)\b|\[\[?\s", re.MULTILINE)


def check_task_launches(text: str) -> Iterator[Finding]:
    """The findings of the launchers in each task of several nodes."""
    for fields in map(fields_of, read_yaml(text).documents):
        for count, script, number, rank, master, source in _TOOLS:
            nodes = number_of(fields.get(count))
            if nodes < 2 or script not in fields:
                continue
            commands = list(_commands(fields[script]))
            yield from check_commands(commands, master, meets=False)
            launched = [one for one in commands if LAUNCHER.search(one.text)]
            if len(launched) == 1 and not any(_CONDITION.search(one.text) for one in commands):
                yield from _unlike_the_task(launched[0], nodes, number, rank, source)


def _unlike_the_task(
    command: Command, nodes: int, number: str, rank: str, source: str
) -> Iterator[Finding]:
    waits, fixed = (
        command.number("nnodes", "num_machines"),
        command.number("node_rank", "machine_rank"),
    )
    if waits not in (None, 1, nodes):  # one: each node is a job of its own
        why = f"the task has {counted(nodes, 'node')}, but the launcher waits for {waits}"
        yield command.finding("nodes-differ", "warning", why, f"--nnodes=${number}", source)
    if (
        fixed is not None
        and waits != 1
        and command.values.get("rdzv_backend", "static") == "static"
    ):
        why = f"each of the {nodes} nodes runs this, and takes itself for node {fixed}"
        yield command.finding("same-node-rank", "error", why, f"--node_rank=${rank}", TORCHRUN)


def _commands(script: yaml.Node) -> Iterator[Command]:
    """The commands of a script, or of a list of scripts, with their lines in the file."""
    for part in children_of(script) or [script]:
        if isinstance(part, yaml.ScalarNode):
            first = part.start_mark.line + (part.style in ("|", ">"))
            yield from (
                Command(first + one.line, one.text, one.values)
                for one in read_commands(part.value.splitlines())
            )
