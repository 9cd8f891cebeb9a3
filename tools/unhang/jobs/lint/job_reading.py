"""Reads a file with which a job was started: lint's findings and settings, and properties that are
no fault by themselves. Nothing runs the file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from unhang.core.quotes import leading_words
from unhang.jobs.job_files import DEEPSPEED, JobFile, Trait
from unhang.jobs.lint.batch import read_batch
from unhang.jobs.lint.checks import Context
from unhang.jobs.lint.lines import limits_in
from unhang.jobs.lint.linting import lint_text, read_script
from unhang.jobs.lint.python_devices import line_of_local_device
from unhang.jobs.lint.python_names import parse_python, read_names
from unhang.jobs.lint.settings import find_settings

MOST_TRAITS = 64
_STATE = re.compile(
    r"^[ \t]{0,40}(?:-"
    r" )?[\"']?(?:containerStatuses|lastState|lastTransitionTime|lastTimestamp|phase)[\"']?:",
    re.MULTILINE,
)
_OF_LINE = {
    "interface": re.compile(
        r"(?<![\w$])(?P<name>(?:NCCL|GLOO|TP)_SOCKET_IFNAME)[\"']?(?:=|:\s{1,8}|\]\s{0,4}=\s{0,4}|,\s{1,4})[\"']?(?P<value>[=^\w][\w.,@=-]{0,100})"
    ),
    "local master": re.compile(
        r"MASTER_ADDR[\"']?(?:\]\s{0,4}=(?!=)|,|=|:)\s{0,4}[\"']?(?:localhost|127\.0\.0\.1)\b|init_method\s{0,4}=\s{0,4}[\"']tcp://(?:localhost|127\.0\.0\.1)\b"
    ),
    "memory": re.compile(
        r"^#SBATCH\s{1,8}--mem(?:-per-(?:cpu|gpu))?=(?P<slurm>\d{1,8}[KMGT]?)|^\s{1,60}memory:\s{1,8}[\"']?(?P<pod>\d{1,6}[KMGT]i?)|"
        r"--memory[= ](?P<docker>\d{1,6}[bkmg])"
    ),
}  # the value of each: its groups, else all of it
_SHARDED = re.compile(
    r'"stage"\s{0,4}:\s{0,4}3|zero_stage:\s{0,4}3|distributed_type:\s{0,4}FSDP|^fsdp_config:|--(?:use_)?fsdp\b|--zero_stage[= ]3',  # noqa: E501
    re.MULTILINE,
)


def read_job_file(name: str, path: Path, kind: str) -> JobFile | None:
    """The findings and properties of a file of the job; None if it is binary. Raises UserError if
    it cannot be read."""
    raw = read_script(path)
    return (
        None
        if raw is None
        else job_file_of(name, raw.encode("utf-8", "replace").decode("utf-8"), kind)
    )


def job_file_of(name: str, text: str, kind: str) -> JobFile:
    """The findings and properties of a script's text."""
    lines = text.splitlines()
    is_script = kind != DEEPSPEED
    findings = lint_text(text, kind, Context()) if is_script else []
    settings = tuple(
        (one.name, one.line)
        for one in (find_settings(text, kind) if is_script else ())
        if one.lasting and one.value and not (one.own or one.local)
    )
    wanted = {*(one.line for one in findings), *(line for _, line in settings)}
    shown = {
        line: leading_words(raw.strip(), 300) for line, raw in enumerate(lines, 1) if line in wanted
    }
    traits, state = tuple(_traits(text, lines, kind)), has_state(text, kind)
    return JobFile(name, kind, len(lines), tuple(findings), settings, traits, shown, state)


def has_state(text: str, kind: str) -> bool:
    """Whether a file of pods also has their state or events, which can be read like a log."""
    return kind == "kubernetes" and _STATE.search(text) is not None


def only_starts_a_job(path: Path, kind: str) -> bool:
    """Whether a job's file has nothing that can be read like a log. Raises UserError if it cannot
    be read."""
    return kind != "kubernetes" or not has_state(read_script(path) or "", kind)


def _traits(text: str, lines: Iterable[str], kind: str) -> Iterator[Trait]:
    if found := _SHARDED.search(text):
        shown, line = found.group().strip(), text.count("\n", 0, found.start()) + 1
        yield Trait("sharded", shown, line, shown)
    if kind == "python" and (tree := parse_python(text)) is not None:
        nodes = list(ast.walk(tree))
        if at := line_of_local_device(nodes, read_names(nodes)):
            shown = leading_words(text.splitlines()[at - 1].strip(), 300)
            yield Trait("local device", "local rank", at, shown)
    if kind == "slurm":
        yield from _of_batch(text)
    count = 0
    for line, raw in enumerate(lines, 1):
        shown = raw[:2000]
        if shown.lstrip().startswith("# ") or count >= MOST_TRAITS:
            continue
        for one in _of_line(shown, line):
            count += 1
            yield one


def _of_batch(text: str) -> Iterator[Trait]:
    """The nodes for which a batch script asks Slurm, if it is several."""
    nodes = read_batch(text).place.nodes
    if nodes and nodes > 1:
        yield Trait("nodes", str(nodes), nodes.line, f"#SBATCH --nodes={nodes}")


def _of_line(line: str, number: int) -> Iterator[Trait]:
    shown = leading_words(line.strip(), 300)
    for name, pattern in _OF_LINE.items():
        if found := pattern.search(line):
            value = "=".join(filter(None, found.groups())) or found.group()
            yield Trait(name, value, number, shown)
    for _text, limit_s in limits_in(line):
        yield Trait("limit", str(limit_s), number, shown)
