"""Checks how many processes a launch starts on each node, and how many GPUs they have. Values in,
values out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from unhang.core.text import counted
from unhang.jobs.job_files import Finding
from unhang.jobs.lint.containers import processes_in
from unhang.jobs.lint.launches import LAUNCHER, RAY, SBATCH, TORCHRUN, Batch, Command

RAY_ON_SLURM = "https://docs.ray.io/en/latest/cluster/vms/user-guides/community/slurm.html"
LIGHTNING = "https://lightning.ai/docs/pytorch/stable/clouds/cluster_advanced.html"
_RAY_IN_STEP = re.compile(
    r"\bsrun\s[^;|&'\"]{0,400}(?:\"[^\"]{0,80}\"[^;|&'\"]{0,200}){0,4}\s(?:\S{0,80}/)?ray"
    r" start\s(?P<options>[^;|]{0,600}?)(?:\s&)?\s{0,8}$"
)
_SERVER = re.compile(r"\b(?:vllm|sglang|lmdeploy|trtllm-serve|text-generation-launcher)\b")
_DEVICES = re.compile(r"(?<![\w.])trainer\.devices[= ](\d{1,2})(?![\w.])")
_VISIBLE = re.compile(r"\bCUDA_VISIBLE_DEVICES=[\"']?(?P<list>\d{1,3}(?:,\d{1,3}){0,63})(?![\w,$])")
_RAY_GPUS = re.compile(r"gpus_per_node$|^(?:nproc_per_node|tensor_parallel_size)$")


def check_processes(
    commands: Sequence[Command], batch: Batch, lines: Sequence[str]
) -> Iterator[Finding]:
    """The findings of a script."""
    for command in commands:
        if LAUNCHER.search(command.text):
            yield from _launcher_in_each_task(command, batch)
        if LAUNCHER.search(command.text) or _SERVER.search(command.text):
            yield from _gpus(command, batch, lines)
    yield from _one_gpu(batch, commands)
    yield from _more_than_ray_has(commands)
    yield from _ray_that_ends(commands)
    yield from _tasks_unlike_devices(commands, batch)


def _ray_that_ends(commands: Sequence[Command]) -> Iterator[Finding]:
    """ray start without --block returns at once, and Slurm ends what a step has left."""
    for command in commands:
        if (ray := _RAY_IN_STEP.search(command.text)) and "--block" not in ray["options"]:
            why = (
                "ray start returns at once, so the step of srun ends, and Slurm kills the processes"
                " of Ray that it has started"
            )
            yield command.finding(
                "ray-without-block",
                "warning",
                why,
                "ray start --block, and & behind the srun",
                RAY_ON_SLURM,
            )


def _tasks_unlike_devices(commands: Sequence[Command], batch: Batch) -> Iterator[Finding]:
    """A Trainer of Lightning, which srun starts once for each of its devices."""
    for command in commands:
        devices, tasks = (
            _DEVICES.search(command.text),
            command.number("ntasks_per_node") or batch.tasks_per_node(),
        )
        if (
            devices
            and tasks
            and tasks != int(devices[1])
            and "srun" in command.text.split()
            and not LAUNCHER.search(command.text)
        ):
            why = (
                f"Lightning needs a task of Slurm for each device: {devices[1]} on a node, but srun"
                f" starts {counted(tasks, 'task')} there"
            )
            yield command.finding(
                "tasks-unlike-devices", "warning", why, f"--ntasks-per-node={devices[1]}", LIGHTNING
            )


def _launcher_in_each_task(command: Command, batch: Batch) -> Iterator[Finding]:
    """srun starts the launcher several times on a node, and each starts a rank for each GPU."""
    before = command.text.partition("torch")[0]
    if "srun" not in before.split() or re.search(r"(?<!\w)(?:-n|--ntasks)(?:[= ]|\d)", before):
        return
    tasks = command.number("ntasks_per_node") or batch.tasks_per_node() or 1
    processes = command.number("nproc_per_node") or command.number("num_processes")
    if tasks > 1 and processes is not None and processes > 1:
        why = (
            f"srun starts this {tasks} times on each node, and each starts {processes} processes:"
            f" {tasks * processes} processes where {processes} are meant"
        )
        yield command.finding(
            "launcher-in-each-task",
            "error",
            why,
            "srun --ntasks-per-node=1 before the launcher",
            TORCHRUN,
        )


def _gpus(command: Command, batch: Batch, lines: Sequence[str]) -> Iterator[Finding]:
    processes = command.number("nproc_per_node")
    if processes is None and command.number("num_machines") in (None, 1):
        processes = command.number("num_processes") or processes_in(command.text)
    if not processes:
        return
    exported = (
        found
        for line in reversed(lines[: command.line])
        if "export" in line and (found := _VISIBLE.search(line))
    )
    shown = _VISIBLE.search(command.text) or next(exported, None)
    asked = batch.gpus_per_node()
    if shown and len(shown["list"].split(",")) < processes:
        why = (
            f"{processes} processes are started on a node, but CUDA_VISIBLE_DEVICES={shown['list']}"
            f" shows {counted(len(shown['list'].split(',')), 'GPU')}"
        )
    elif asked is not None and asked < processes:
        why = (
            f"{processes} processes are started on a node, but the job has {counted(asked, 'GPU')}"
            " there"
        )
    else:
        return
    yield command.finding(
        "gpus-fewer-than-processes", "warning", why, "one process for each GPU", TORCHRUN
    )


def _one_gpu(batch: Batch, commands: Sequence[Command]) -> Iterator[Finding]:
    places = [
        (one.line, one.text)
        for one in commands
        if one.values.get("gpus_per_task") == "1"
        or one.values.get("gpu_bind", "").startswith("single:1")
    ]
    for name, wanted in (("gpus_per_task", "1"), ("gpu_bind", "single:1")):
        value, line = batch.options.get(name, ("", 0))
        if value == wanted:
            places.append((line, f"#SBATCH --{name.replace('_', '-')}={value}"))
    for line, text in places:
        why = (
            "each task sees only its own GPU, as number 0: an index by local rank fails, and the"
            " ranks of a node may not reach each other's memory"
        )
        yield Finding(
            line,
            "one-gpu-per-task",
            "info",
            text,
            why,
            "--gpus-per-node, and set_device(local rank) in the script",
            SBATCH,
        )


def _more_than_ray_has(commands: Sequence[Command]) -> Iterator[Finding]:
    """GPUs on a node that a job submitted to Ray asks for, beside those that `ray start`
    announces."""
    given = max(
        (one.number("num_gpus") or 0 for one in commands if re.search(r"\bray start\b", one.text)),
        default=0,
    )
    for command in commands if given else ():
        asked = max(
            (
                (number, name)
                for name in command.values
                if _RAY_GPUS.search(name) and (number := command.number(name))
            ),
            default=(0, ""),
        )
        if asked[0] > given and "ray start" not in command.text:
            why = (
                f"--{asked[1]} asks for {asked[0]} GPUs on a node, and ray start announces {given}:"
                " Ray waits for ever for a place"
            )
            yield command.finding("more-gpus-than-ray-has", "error", why, f"at most {given}", RAY)
