"""Which nodes Slurm can read: those of a job, or the idle ones of its partitions, which a job of
our own has for the time of the reading."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from unhang.core.ansible.printable_text import clean
from unhang.core.ansible.slurm_inventory import PASSED_ON, parse_gres, read_slurm, slurm_output
from unhang.core.errors import UserError
from unhang.core.nodeset import expand_limit
from unhang_node.base.parse.slurm import SlurmNode
from unhang_node.base.process import FOLDERS

JOB = re.compile(r"\d{1,10}(?:_\d{1,8}|\+\d{1,4})?")
ASKED_S = 60.0  # for an answer of Slurm's commands
GRANT_S = 60  # for an allocation of nodes that are idle
# states of a node that can take a job at once
HARMLESS = {"IDLE", "CLOUD", "DYNAMIC_NORM", "PLANNED"}
OWN = ("USER", "SLURM_ACCOUNT", "SLURM_QOS", "SLURM_RESERVATION")


def slurm_variables() -> dict[str, str]:
    """The environment of Slurm's commands: where its daemons are, and whose account and reservation
    a job is in. Nothing else reaches a node."""
    passed = {name: os.environ[name] for name in (*PASSED_ON, *OWN) if os.environ.get(name)}
    path = f"{FOLDERS}:{os.environ.get('PATH', '')}".rstrip(":")
    return {"LC_ALL": "C", "HOME": "/", **passed, "PATH": path}


def nodes_of(job: str, partitions: Sequence[str]) -> list[str]:
    """The nodes of a running job, or those of partitions. Raises UserError where there are none."""
    if not job:
        names = [node.name for node in _nodes().values() if {*partitions} & {*_partitions(node)}]
        if not names:
            raise UserError(
                f"--slurm-partition {clean(', '.join(partitions), 120)} has no nodes; sinfo lists"
                " the partitions"
            )
        return names
    if not JOB.fullmatch(job):
        raise UserError(f"--slurm-job takes the number of a job, not {clean(job, 60)!r}")
    argv = ["squeue", "--noheader", f"--jobs={job}", "--states=RUNNING", "--format=%N"]
    words = slurm_output(argv, ASKED_S).split()
    if not words:
        raise UserError(f"--slurm-job {job} does not run")
    return list(dict.fromkeys(name for word in words for name in expand_limit(word)))


def srun_options(
    names: Sequence[str], job: str, partitions: Sequence[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """({node: options of the srun that can read it}, {node: why none can}). Raises UserError."""
    known, there = _nodes(), nodes_of(job, ()) if job else ()
    options, refused = {}, {}
    for name in names:
        why = "no node of Slurm"
        if name in known and job:
            why = "" if name in there else f"no node of job {job}"
        elif name in known:
            why = _why_not(known[name], partitions)
        if why:
            refused[name] = why
            continue
        if job:
            own = (f"--jobid={job}", "--overlap")
        else:
            row = [one for one in _partitions(known[name]) if not partitions or one in partitions]
            own = (f"--partition={','.join(row)}", "--job-name=unhang-audit")
        # A step sees no GPU that its job has by --exclusive alone, and Slurm refuses more than the
        # job has: a node is read with all of its GPUs or not at all.
        gpus = sum(
            int(row["count"])
            for row in parse_gres(known[name].fields.get("Gres", ""))
            if row["name"] == "gpu" and row["count"].isdigit()
        )
        gres = (f"--gres=gpu:{gpus}",) if gpus else ()
        options[name] = (f"--immediate={GRANT_S}", *own, *gres)
    return options, refused


def _nodes() -> dict[str, SlurmNode]:
    nodes, _topology = read_slurm(["scontrol"], ASKED_S)
    return {node.name: node for node in nodes if "FUTURE" not in node.states}


def _partitions(node: SlurmNode) -> list[str]:
    return [name for name in node.fields.get("Partitions", "").split(",") if name]


def _why_not(node: SlurmNode, partitions: Sequence[str]) -> str:
    """Why a node cannot take a job at once; "" for one that can."""
    if partitions and not {*partitions} & {*_partitions(node)}:
        return "in no partition that was asked for"
    if not _partitions(node):
        return "Slurm has it in no partition"
    if node.states <= HARMLESS and "IDLE" in node.states:
        return ""
    states = "+".join(sorted(state.lower() for state in node.states))
    return clean(f"Slurm has it {states}{f' ({node.reason})' if node.reason else ''}", 200)
