"""Checks how a batch script, a command or accelerate's configuration starts ranks. Text in, values
out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from unhang.core.text import counted
from unhang.jobs.job_files import Finding
from unhang.jobs.lint.launch_addresses import check_addresses, check_own_names, is_loopback
from unhang.jobs.lint.launch_nodes import check_nodes, check_standalone
from unhang.jobs.lint.launch_processes import check_processes
from unhang.jobs.lint.launches import SBATCH, Batch, Command, read_batch, read_commands
from unhang.jobs.lint.settings import LONGEST_LINE

ACCELERATE = "https://huggingface.co/docs/accelerate/package_reference/cli"
SHM = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
MOST_LINES = 20_000
_DIRECTIVE = re.compile(r"^#(?P<word>[A-Z]{5,7})\s{1,8}-{1,2}[a-zA-Z]")
_DOCKER = re.compile(r"\b(?:docker|podman|nerdctl) run\b")
_DOCKER_GPUS = re.compile(r"--gpus\b|--runtime[= ]nvidia|nvidia\.com/gpu")
_DOCKER_SHM = re.compile(r"--shm-size|--ipc[= ](?:host|\"host\")|/dev/shm")
_FIRST = "the first node's name or address, the same on every node"
_FIRST_OF_SLURM = (
    'the first node\'s name: $(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
)
_CONFIGURED = re.compile(
    r"^(?P<name>num_machines|num_processes|machine_rank|main_process_ip|gpu_ids):\s{1,8}[\"']?(?P<value>[\w.,:-]{1,100})",
    re.MULTILINE,
)


def check_launch(text: str, kind: str) -> Iterator[Finding]:
    """The findings of one file."""
    if kind == "kubernetes" and re.search(
        r"^(?:distributed_type|compute_environment):", text, re.MULTILINE
    ):
        yield from _accelerate(text)
    if kind not in ("shell", "slurm"):
        return
    lines = [line[:LONGEST_LINE] for line in text.splitlines()[:MOST_LINES]]
    batch, commands = read_batch(lines), read_commands(lines)
    yield from check_nodes(commands, batch, text)
    yield from check_standalone(commands)
    yield from check_processes(commands, batch, lines)
    master = _FIRST_OF_SLURM if batch.options else _FIRST
    yield from check_addresses(commands, batch, master, meets="PET_" in text)
    yield from check_own_names(text, batch, master)
    yield from _container_shm(commands)
    yield from _directives(batch, lines)


def check_commands(commands: Sequence[Command], master: str, *, meets: bool) -> Iterator[Finding]:
    """The findings of commands outside a batch script. master, meets: see `check_addresses`."""
    yield from check_standalone(commands)
    yield from check_addresses(commands, Batch({}), master, meets=meets)


def _container_shm(commands: Sequence[Command]) -> Iterator[Finding]:
    for command in commands:
        if (
            _DOCKER.search(command.text)
            and _DOCKER_GPUS.search(command.text)
            and not _DOCKER_SHM.search(command.text)
        ):
            why = (
                "the container gets only 64 MB of /dev/shm, where NCCL and data loaders keep their"
                " segments"
            )
            yield command.finding("container-shm", "info", why, "--ipc=host, or --shm-size=8g", SHM)


def _directives(batch: Batch, lines: Sequence[str]) -> Iterator[Finding]:
    """Lines that are nearly #SBATCH, which Slurm takes for comments."""
    late = next((number for number, line in enumerate(lines[:20], 1) if line.startswith("#!")), 1)
    if batch.options and late > 1 and not lines[0].startswith("#!"):
        why = "sbatch refuses a script whose first line is not its interpreter"
        yield Finding(
            late,
            "interpreter-not-first",
            "error",
            lines[late - 1],
            why,
            "this line as the first one",
            SBATCH,
        )
    for number, line in enumerate(lines, 1):
        found = _DIRECTIVE.match(line) if batch.options else None
        if (
            found
            and found["word"] != "SBATCH"
            and sum((Counter("SBATCH") & Counter(found["word"])).values()) >= len("SBATCH") - 1
        ):
            why = f"Slurm takes #{found['word']} for a comment, so this option is not set"
            yield Finding(number, "misspelt-directive", "warning", line, why, "#SBATCH", SBATCH)


def _accelerate(text: str) -> Iterator[Finding]:
    """The findings of accelerate's configuration file."""
    found = {
        one["name"]: (one["value"], text.count("\n", 0, one.start()) + 1)
        for one in _CONFIGURED.finditer(text)
    }
    machines, processes = (
        int(found[name][0]) if name in found and found[name][0].isdigit() else None
        for name in ("num_machines", "num_processes")
    )
    address, line = found.get("main_process_ip", ("", 0))
    if (machines or 1) > 1 and is_loopback(address):
        why = "each node uses itself as the master, so the nodes never meet"
        yield Finding(
            line,
            "master-is-loopback",
            "warning",
            f"main_process_ip: {address}",
            why,
            "the address of machine 0",
            ACCELERATE,
        )
    shown, line = found.get("gpu_ids", ("all", 0))
    if (
        processes
        and (machines or 1) == 1
        and re.fullmatch(r"\d{1,3}(?:,\d{1,3}){0,63}", shown)
        and len(shown.split(",")) < processes
    ):
        why = (
            f"num_processes is {processes}, but gpu_ids names"
            f" {counted(len(shown.split(',')), 'GPU')}"
        )
        yield Finding(
            line,
            "gpus-fewer-than-processes",
            "warning",
            f"gpu_ids: {shown}",
            why,
            "one process for each GPU",
            ACCELERATE,
        )
    if processes and machines and processes % machines:
        line = found["num_processes"][1]
        why = (
            f"num_processes counts the whole job, but {processes} cannot be divided by {machines}"
            " machines"
        )
        yield Finding(
            line,
            "nodes-differ",
            "warning",
            f"num_processes: {processes}",
            why,
            "machines x GPUs of each",
            ACCELERATE,
        )
