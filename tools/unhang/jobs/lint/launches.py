"""Reads how a batch script or a command starts ranks: the options of Slurm, the commands with their
options. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
SBATCH = "https://slurm.schedmd.com/sbatch.html"
RAY = "https://docs.ray.io/en/latest/cluster/vms/user-guides/launching-clusters/on-premises.html"
# srun: some of the job's nodes
OF_ONE_STEP = re.compile(r"(?<![\w-])(?:-[Nnw]|--(?:nodes|nodelist|ntasks)(?![\w-]))[= ]?\S")
LAUNCHER = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch)\b")
_LONGEST_COMMAND = 60
_OPTION = re.compile(
    r"(?<![\w-])--?(?P<name>[A-Za-z][\w-]{0,40})(?:=|\s{1,8})(?P<value>\"[^\"]{0,200}\"|'[^']{0,200}'|[^\s\"'-][^\s\"']{0,200})"
)
_SHORT = {"N": "nodes", "n": "ntasks"}
_BATCH = re.compile(r"^#SBATCH\s{1,8}(?P<options>\S.{0,400})")
ASSIGNED = re.compile(
    r"^\s{0,40}(?:export\s{1,8})?(?P<name>[A-Za-z_]\w{0,60})=[\"']?(?P<value>[\w.:,-]{1,200})[\"']?\s{0,8}(?:#.*)?$"
)
_READ = re.compile(r"\$\{?(?P<name>\w{1,60})\}?")
_GPUS = re.compile(
    r"^gpu(?::[\w.-]{1,40})?:(?P<count>\d{1,3})|^(?:[\w.-]{1,40}:)?(?P<plain>\d{1,3})$"
)


@dataclass(frozen=True)
class Command:
    """A command with its continued lines as one. values: its options by name, with underscores;
    variables with a constant value in the file are replaced."""

    line: int
    text: str
    values: dict[str, str]

    def number(self, *names: str) -> int | None:
        """The number of one of these options; the upper end of a range."""
        given = next((self.values[name] for name in names if name in self.values), "")
        last = given.rpartition(":")[2]
        return int(last) if last.isdigit() and len(last) < 6 else None


@dataclass(frozen=True)
class Batch:
    """The options of `#SBATCH` lines: option -> (value, line)."""

    options: dict[str, tuple[str, int]]

    def number(self, name: str) -> int | None:
        """The number of an option; None for a range or a missing option."""
        value = self.options.get(name, ("", 0))[0]
        return int(value) if value.isdigit() and len(value) < 6 else None

    def gpus_per_node(self) -> int | None:
        """GPUs that the job has on each node."""
        for name in ("gpus_per_node", "gres"):
            if found := _GPUS.match(self.options.get(name, ("", 0))[0]):
                return int(found["count"] or found["plain"])
        return None


def read_batch(lines: Sequence[str]) -> Batch:
    """The `#SBATCH` lines of a file; a later one wins."""
    options: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines, 1):
        if found := _BATCH.match(line):
            for one in _OPTION.finditer(found["options"].partition(" #")[0]):
                name = _SHORT.get(one["name"], one["name"]).replace("-", "_")
                options[name] = (one["value"].strip("\"'"), number)
    return Batch(options)


def read_commands(lines: Sequence[str], given: Mapping[str, str] | None = None) -> list[Command]:
    """The commands of a script, without comments. given: variables that it gets from outside; those
    that Slurm sets for its batch script are known."""
    held: dict[str, str] = {**_set_by_slurm(read_batch(lines)), **(given or {})}
    commands: list[Command] = []
    at = 0
    while at < len(lines):
        start, parts = at, [lines[at]]
        while (
            parts[-1].rstrip().endswith("\\")
            and at + 1 < len(lines)
            and len(parts) < _LONGEST_COMMAND
        ):
            at += 1
            parts.append(lines[at])
        at += 1
        if parts[0].lstrip().startswith("#"):
            continue
        text = " ".join(
            part.rstrip().rstrip("\\").strip()
            for part in parts
            if not part.lstrip().startswith("#")
        )
        if assigned := ASSIGNED.match(text):
            held[assigned["name"]] = assigned["value"]
        values = {
            one["name"].replace("-", "_"): _resolved(one["value"].strip("\"'"), held)
            for one in _OPTION.finditer(text)
        }
        commands.append(Command(start + 1, text, values))
    return commands


def _set_by_slurm(batch: Batch) -> dict[str, str]:
    numbers = {
        "SLURM_NNODES": batch.number("nodes"),
        "SLURM_JOB_NUM_NODES": batch.number("nodes"),
        "SLURM_NTASKS_PER_NODE": batch.number("ntasks_per_node"),
        "SLURM_GPUS_ON_NODE": batch.gpus_per_node(),
    }
    return {name: str(number) for name, number in numbers.items() if number is not None}


def _resolved(value: str, held: dict[str, str]) -> str:
    read = _READ.fullmatch(value)
    return held.get(read["name"], value) if read else value
