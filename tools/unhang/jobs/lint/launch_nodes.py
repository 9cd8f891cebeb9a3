"""Checks how many nodes a launch has: the number that Slurm gives, that the launcher waits for, and
the number of each node. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from unhang.core.text import counted
from unhang.jobs.job_files import Finding
from unhang.jobs.lint.launches import LAUNCHER, OF_ONE_STEP, SBATCH, TORCHRUN, Batch, Command

_SPREADS = re.compile(
    r"\b(?:srun|mpirun|mpiexec|pdsh|clush|pssh|ssh|prun|jsrun|aprun|ibrun|ansible)\b"
)
_DEEPSPEED = re.compile(
    r"^\s{0,40}(?:exec\s{1,8})?deepspeed\s(?!.*(?:--hostfile|--launcher|--num_nodes[= ]1\b|\s-H\s))"
)
_HOSTFILE = "/job/hostfile"  # the one that deepspeed reads if none is named
_EXPANDED_RANK = re.compile(r"\$\{?SLURM_(?:PROCID|NODEID)\}?")
# the batch script itself expands what is inside
_HELD = re.compile(r"^\s{0,40}(?:export\s{1,8})?(?P<name>[A-Za-z_]\w{0,60})=\"")


def check_nodes(commands: Sequence[Command], batch: Batch, text: str) -> Iterator[Finding]:
    """The findings of the launchers in a script."""
    for command in commands:
        if _DEEPSPEED.search(command.text) and _HOSTFILE not in text:
            yield from _one_node(
                command, batch, text, "--launcher slurm, and --hostfile with the job's nodes"
            )
        if LAUNCHER.search(command.text):
            yield from _nodes(command, batch, text)
            yield from _rank_in_quotes(command, commands, batch)


def check_standalone(commands: Sequence[Command]) -> Iterator[Finding]:
    """torchrun is told to make a job of one node, and also what only a job of several nodes
    needs."""
    for command in commands:
        given = [
            name
            for name in ("node_rank", "master_addr", "rdzv_endpoint")
            if command.values.get(name, "0") not in ("0", "localhost", "127.0.0.1")
        ]
        is_alone = LAUNCHER.search(command.text) and re.search(
            r"(?<!\S)--standalone\b", command.text
        )
        if is_alone and command.values.get("nnodes", "1") != "1" and given:
            why = (
                f"--standalone makes a job of this node alone: --nnodes and --{given[0]} are"
                " ignored, and each node trains for itself"
            )
            instead = "leave --standalone out, or --nnodes and the master's address"
            yield command.finding("standalone-of-several-nodes", "warning", why, instead, TORCHRUN)


def _nodes(command: Command, batch: Batch, text: str) -> Iterator[Finding]:
    asked = batch.number("nodes")
    nodes = command.number("nnodes", "num_machines")
    if asked is None:
        return
    if nodes is not None and nodes != asked and _is_whole_job(command):
        why = (
            f"the job asks Slurm for {counted(asked, 'node')} (line {batch.options['nodes'][1]}),"
            f" but the launcher waits for {nodes}"
        )
        yield command.finding("nodes-differ", "warning", why, "--nnodes=$SLURM_NNODES", TORCHRUN)
    if (nodes or 2) > 1:
        yield from _one_node(command, batch, text, "srun --ntasks-per-node=1 before it")
    fixed = command.number("node_rank", "machine_rank")
    is_static = (
        command.values.get("rdzv_backend", "static") == "static"
        and "rdzv_endpoint" not in command.values
    )
    if (
        fixed is None
        and _EXPANDED_RANK.fullmatch(command.values.get("node_rank", ""))
        and "'" not in command.text.partition("torch")[0]
    ):
        fixed = 0  # the batch script itself expands the variable, on the first node
    if (
        asked > 1
        and fixed is not None
        and is_static
        and "srun" in command.text.split()
        and _is_whole_job(command)
    ):
        why = (
            f"srun starts this on each of the {asked} nodes, and each one takes itself for node"
            f" {fixed}"
        )
        instead = (
            "--node_rank=$SLURM_NODEID read on each node (bash -c '...'), or --rdzv-backend=c10d"
        )
        yield command.finding("same-node-rank", "warning", why, instead, TORCHRUN)


def _one_node(command: Command, batch: Batch, text: str, instead: str) -> Iterator[Finding]:
    asked = batch.number("nodes") or 1
    if asked > 1 and not _SPREADS.search(text):
        why = (
            f"a batch script runs only on the first of its {asked} nodes: nothing starts the"
            " launcher on the others"
        )
        yield command.finding("launcher-on-one-node", "warning", why, instead, SBATCH)


def _rank_in_quotes(
    command: Command, commands: Sequence[Command], batch: Batch
) -> Iterator[Finding]:
    """A launcher in a double-quoted variable that srun runs later: the rank in it is read before
    the nodes are there."""
    held = _HELD.match(command.text)
    rank = next(
        (command.values[name] for name in ("node_rank", "machine_rank") if name in command.values),
        "",
    )
    if not held or not _EXPANDED_RANK.fullmatch(rank) or (batch.number("nodes") or 2) < 2:
        return
    used = re.compile(rf"\$\{{?{held['name']}\b")
    if any("srun" in one.text.split() and used.search(one.text) for one in commands):
        why = (
            f"the batch script expands {rank} inside the double quotes, on the first node, so each"
            " node takes itself for node 0"
        )
        yield command.finding(
            "same-node-rank",
            "warning",
            why,
            f"\\{rank}, which bash -c on each node expands",
            TORCHRUN,
        )


def _is_whole_job(command: Command) -> bool:
    """Whether the command uses all nodes of the job, and is not one of several steps with some of
    them."""
    return not OF_ONE_STEP.search(command.text.partition("torch")[0])
