"""Which nodes Slurm can read: those of a job, or the idle ones of its partitions, which a job of
our own takes whole for the time of the reading."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence

from unhang.core.ansible.printable_text import clean
from unhang.core.ansible.slurm_inventory import PASSED_ON, parse_gres, read_slurm
from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit, fold_hosts
from unhang_node.base.parse.slurm import SlurmNode
from unhang_node.base.process import FOLDERS, ProcessResult, run_process

JOB = re.compile(r"\d{1,10}(?:_\d{1,8}|\+\d{1,4})?")
ASKED_S = 60.0  # for an answer of Slurm's commands
GRANT_S = 60  # for an allocation of nodes that are idle
# states of a node that can take a job at once
HARMLESS = {"IDLE", "CLOUD", "DYNAMIC_NORM", "PLANNED"}
PARTS = re.compile(r"\sNodes=(\S+) CPU_IDs=\S+ Mem=\S+ GRES=(\S*)")


def slurm_variables() -> dict[str, str]:
    """The environment of Slurm's commands: where its daemons are, and what a person has set for
    allocations (SALLOC_ACCOUNT). Nothing else reaches a node."""
    passed = {name: os.environ[name] for name in (*PASSED_ON, "USER") if os.environ.get(name)}
    asked = {name: value for name, value in os.environ.items() if name.startswith("SALLOC_")}
    return {
        "LC_ALL": "C",
        "HOME": "/",
        **passed,
        **asked,
        "PATH": f"{FOLDERS}:{os.environ.get('PATH', '')}".rstrip(":"),
    }


def job_nodes(job: str) -> tuple[list[str], dict[str, str]]:
    """(nodes of a running job, {node: why a step of it may not see the whole node}). Raises
    UserError."""
    if not JOB.fullmatch(job):
        raise UserError(f"--slurm-job: expected the number of a job, found {clean(job, 60)!r}")
    done = _ask(["squeue", "--noheader", f"--jobs={job}", "--states=RUNNING", "--format=%N"])
    words = done.stdout.split()
    if done.code or not words:
        raise UserError(
            f"--slurm-job {job}: expected a job that runs, found"
            f" {clean(_said(done), 200) if done.code else 'none'}"
        )
    names = list(dict.fromkeys(name for word in words for name in expand_limit(word)))
    return names, _partly(job)


def _partly(job: str) -> dict[str, str]:
    """Nodes of which the job has not all GPUs, as far as scontrol says: where Slurm confines
    devices, the others would look as if they had failed."""
    text = _ask(["scontrol", "--oneliner", "--details", "show", "job", job]).stdout
    held = parse_held(text)
    there = (
        {node.name: parse_gres(node.fields.get("Gres", "")) for node in all_nodes()} if held else {}
    )
    found = {}
    for name, gres in held.items():
        has, of = _gpus(gres), _gpus(there.get(name, []))
        if has < of:
            found[name] = (
                f"job {job} has {has} of its {of} GPUs, and its steps may not see the others; use a"
                " job that has whole nodes (--exclusive)"
            )
    return found


def parse_held(text: str) -> dict[str, list[dict[str, str]]]:
    """{node: what a job has of it} of `scontrol -o -d show job`. A job's name and comment are in
    that text too, and may look like it: raises UserError for a node with two answers."""
    held: dict[str, str] = {}
    for nodes, gres in PARTS.findall(text):
        for name in expand_limit(nodes):
            if held.setdefault(name, gres) != gres:
                raise UserError(
                    f"expected one answer of Slurm about the GPUs that the job has on"
                    f" {clean(name, 80)}, found two: look at its name and comment"
                )
    return {name: parse_gres(gres) for name, gres in held.items()}


def _gpus(gres: Sequence[Mapping[str, str]]) -> int:
    return sum(int(row["count"]) for row in gres if row["name"] == "gpu" and row["count"].isdigit())


def all_nodes() -> list[SlurmNode]:
    """Slurm's nodes. Raises UserError."""
    nodes, _topology = read_slurm(["scontrol"], ASKED_S)
    return [node for node in nodes if "FUTURE" not in node.states]


def partitions_of(node: SlurmNode) -> list[str]:
    """Its partitions, in Slurm's order."""
    return [name for name in node.fields.get("Partitions", "").split(",") if name]


def why_not_idle(node: SlurmNode) -> str:
    """Why a node cannot take a job at once; "" for one that can."""
    if node.states <= HARMLESS and "IDLE" in node.states and partitions_of(node):
        return ""
    states = (
        "+".join(sorted(state.lower() for state in node.states))
        if partitions_of(node)
        else "in no partition"
    )
    return clean(f"Slurm has it {states}{f' ({node.reason})' if node.reason else ''}", 200)


@contextlib.contextmanager
def allocated(hosts: Sequence[str], partition: str, minutes: int) -> Iterator[str]:
    """The number of a job that has these nodes whole, cancelled at the end; it ends by itself after
    `minutes` in any case. Raises UserError if Slurm gives none."""
    count = str(len(hosts))
    argv = [
        "salloc",
        "--no-shell",
        f"--immediate={GRANT_S}",
        "--exclusive",
        "--no-kill",
        f"--partition={partition}",
        f"--nodelist={fold_hosts(hosts)}",
    ]
    argv += [
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        f"--time={minutes}",
        "--job-name=unhang-audit",
        "--no-bell",
        "--chdir=/",
    ]
    done = run_process(argv, GRANT_S + ASKED_S, variables=slurm_variables())
    granted = re.search(r"Granted job allocation (\d{1,10})", done.stderr) or re.search(
        r"[Jj]ob allocation (\d{1,10})", done.stderr
    )
    try:
        if done.code or not granted:
            raise UserError(
                f"Slurm gave no allocation of {count} idle nodes in {partition}:"
                f" {clean(_said(done), 200)}"
            )
        yield granted[1]
    finally:
        if granted:
            run_process(["scancel", granted[1]], ASKED_S, variables=slurm_variables())


def broadcast(job: str, source: str, target: str) -> None:
    """sbcast to all nodes of a job. A node that it does not reach asks for the file itself, so its
    end means nothing."""
    run_process(["sbcast", f"--jobid={job}", source, target], ASKED_S, variables=slurm_variables())


def _ask(argv: list[str]) -> ProcessResult:
    """Raises UserError where the command is missing or does not end."""
    done = run_process(argv, ASKED_S, variables=slurm_variables())
    if done.is_missing:
        raise UserError(
            f"--via slurm: expected {argv[0]} on PATH, found none; run this on a login node of the"
            " cluster"
        )
    if done.timed_out:
        raise UserError(
            f"--via slurm: expected an answer of {argv[0]} within {ASKED_S:g} s, found none: is"
            " slurmctld running?"
        )
    return done


def _said(done: ProcessResult) -> str:
    """Slurm's last word about a command."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line.partition("error: ")[2] for line in lines if "error: " in line]
    return (
        errors
        or lines
        or [
            (
                f"it did not end within {GRANT_S + ASKED_S:g} s"
                if done.timed_out
                else f"code {done.code}"
            )
        ]
    )[-1]
