"""Reads how a batch script or a command starts ranks: the options of Slurm, the commands with their
options. Text in, values out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unhang.jobs.job_files import Finding

TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
SBATCH = "https://slurm.schedmd.com/sbatch.html"
RAY = "https://docs.ray.io/en/latest/cluster/vms/user-guides/launching-clusters/on-premises.html"
# srun: some of the job's nodes
OF_ONE_STEP = re.compile(r"(?<![\w-])(?:-[Nnw]|--(?:nodes|nodelist|ntasks)(?![\w-]))[= ]?\S")
LAUNCHER = re.compile(r"\b(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch)\b")
_LONGEST_COMMAND = 60
_OPTION = re.compile(  # the script of sh -c is no value: its own options are those of the command
    r"(?<![\w-])--?(?!\w{0,3}c\s{1,8}[\"'])(?P<name>[A-Za-z][\w-]{0,40})(?:=|\s{1,8})(?P<value>\"[^\"]{0,200}\"|'[^']{0,200}'|[^\s\"'-][^\s\"']{0,200})"
)
_SHORT = {"N": "nodes", "n": "ntasks", "G": "gpus", "c": "cpus_per_task"}
# the variables of Slurm that are not named after their option, as SLURM_GPUS_PER_NODE is
_OF_OPTION = {"SLURM_NNODES": "nodes", "SLURM_JOB_NUM_NODES": "nodes", "SLURM_NPROCS": "ntasks"}
_BATCH = re.compile(r"^#SBATCH\s{1,8}(?P<options>\S.{0,400})")
ASSIGNED = re.compile(
    r"^\s{0,40}(?:export\s{1,8})?(?P<name>[A-Za-z_]\w{0,60})=[\"']?(?P<value>[\w.:,-]{1,200})[\"']?\s{0,8}(?:#.*)?$"
)
_COPIED = re.compile(
    r"^\s{0,40}(?:export\s{1,8})?(?P<name>[A-Za-z_]\w{0,60})=[\"']?(?P<value>\$[\w:{}-]{1,120})[\"']?\s{0,8}(?:#.*)?$"
)
_READ = re.compile(
    r"\$(?:(?P<name>\w{1,60})|\{(?P<braced>\w{1,60})(?::?-(?P<default>\w{0,40}))?\})"
)
_STEP = re.compile(r"\bsrun\s(?P<options>[^'\"|;&]{0,400})")
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

    def finding(self, rule: str, severity: str, why: str, instead: str, source: str) -> Finding:
        """A finding about this command."""
        return Finding(self.line, rule, severity, self.text, why, instead, source)


@dataclass(frozen=True)
class Batch:
    """The options of `#SBATCH` lines: option -> (value, line)."""

    options: dict[str, tuple[str, int]]

    def number(self, name: str) -> int | None:
        """The number of an option; None for a range or a missing option."""
        value = self.options.get(name, ("", 0))[0]
        return int(value) if value.isdigit() and len(value) < 6 else None

    def values(self) -> dict[str, str]:
        """The options without their lines."""
        return {name: value for name, (value, _line) in self.options.items()}

    def gpus_per_node(self) -> int | None:
        """GPUs that the job has on each node."""
        return _gpus_per_node(self.values())

    def tasks_per_node(self) -> int | None:
        """Tasks that srun starts on each node, by their number there or in the whole job."""
        each, whole, nodes = map(self.number, ("ntasks_per_node", "ntasks", "nodes"))
        return each or (-(-whole // nodes) if whole and nodes else None)


def read_batch(lines: Sequence[str]) -> Batch:
    """The `#SBATCH` lines of a file; a later one wins."""
    options: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines, 1):
        if found := _BATCH.match(line):
            read = _options(found["options"].partition(" #")[0])
            options |= {name: (value, number) for name, value in read.items()}
    return Batch(options)


def read_commands(lines: Sequence[str], given: Mapping[str, str] | None = None) -> list[Command]:
    """The commands of a script, without comments. given: variables that it gets from outside; those
    that Slurm sets for its batch script, and for the step of an srun, are known."""
    asked = read_batch(lines).values()
    held: dict[str, str] = {**set_by_slurm(asked), **(given or {})}
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
        if assigned := ASSIGNED.match(text) or _COPIED.match(text):
            held[assigned["name"]] = _resolved(assigned["value"], held)
        step = _STEP.search(text)
        inside = {**held, **set_by_slurm({**asked, **_options(step["options"])})} if step else held
        values = {
            one["name"].replace("-", "_"): _resolved(
                one["value"].strip("\"'"), inside if _is_quoted(text, one.start()) else held
            )
            for one in _OPTION.finditer(text)
        }
        commands.append(Command(start + 1, text, values))
    return commands


def set_by_slurm(options: Mapping[str, str]) -> dict[str, str]:
    """The variables that Slurm sets for these options of sbatch and srun; none for a value that is
    not in the text, such as a range of nodes."""
    each, nodes = options.get("ntasks_per_node", ""), options.get("nodes", "")
    known = dict(options)
    if "ntasks" not in options and each.isdecimal() and nodes.isdecimal():
        known["ntasks"] = str(int(each) * int(nodes))
    gpus = _gpus_per_node(options)
    named = {f"SLURM_{name.upper()}": value for name, value in known.items() if name != "nodes"}
    named |= {name: known[option] for name, option in _OF_OPTION.items() if option in known}
    named |= {} if gpus is None else {"SLURM_GPUS_ON_NODE": str(gpus)}
    return {name: value for name, value in named.items() if re.fullmatch(r"(?:\w+:)?\d+", value)}


def _options(text: str) -> dict[str, str]:
    return {
        _SHORT.get(one["name"], one["name"]).replace("-", "_"): one["value"].strip("\"'")
        for one in _OPTION.finditer(text)
    }


def _gpus_per_node(options: Mapping[str, str]) -> int | None:
    for name in ("gpus_per_node", "gres"):
        if found := _GPUS.match(options.get(name, "")):
            return int(found["count"] or found["plain"])
    return None


def _is_quoted(text: str, place: int) -> bool:
    """Whether a shell that srun starts expands what is here: it is in single quotes."""
    return text.count("'", 0, place) % 2 == 1


def _resolved(value: str, held: Mapping[str, str]) -> str:
    """A variable's value: what is held, else the default for one of Slurm; else the text itself."""
    read = _READ.fullmatch(value)
    if read is None:
        return value
    name = read["name"] or read["braced"]
    default = read["default"] if name.startswith("SLURM_") else None
    return held.get(name, default or value)
