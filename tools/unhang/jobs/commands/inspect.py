"""`unhang inspect`: looks at a job that runs and says which rank all others wait for, where it
is, and what to do."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unhang.core.commands.common_options import (
    add_examples,
    add_format_option,
    add_inventory,
    add_repeatable,
    add_value,
    add_verbose,
)
from unhang.core.commands.options import Options
from unhang.core.errors import UserError
from unhang.core.path_arguments import checked_output
from unhang.core.project import program_as_typed
from unhang.core.verdict.answer import render_evidence
from unhang.core.verdict.job import HUNG, SLOW, UNKNOWN
from unhang.jobs.inspect.answer import answer_of
from unhang.jobs.inspect.bundle import read_documents, write_bundle
from unhang.jobs.inspect.evidence import NodeEvidence, RankRow, evidence_of
from unhang.jobs.inspect.here import LookHere
from unhang.jobs.inspect.inspecting import inspection_of
from unhang.jobs.inspect.rendering import render_inspection
from unhang.jobs.inspect.ways import arguments_of, slurm_documents
from unhang_node.job.look_options import add_look_options, chosen_look_options

EXAMPLES = """\
  unhang inspect                            your job on this machine
  unhang inspect --pid 4711                 the job of this process
  unhang inspect --slow                     it runs, but slowly: which rank, and why
  unhang inspect --container train          a job in a container of this machine; as root, or as the container's user
  unhang inspect --slurm-job 1234           all its nodes, as its owner, without root
  unhang inspect --host 'gpu[01-08]'        these nodes by Ansible; -- --become for jobs of other users
  unhang inspect --out hang.tar.gz          the evidence as well, secrets masked; unhang diagnose reads it
  unhang inspect --evidence a.json b.json   what unhang-inspect.pyz printed on nodes or in pods"""  # noqa: E501
EXIT_CODES = {HUNG: 1, SLOW: 1, UNKNOWN: 3}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_look_options(parser)
    _add_node_options(parser)
    parser.add_argument(
        "--evidence",
        metavar="FILE",
        nargs="+",
        help="judge documents of unhang-inspect.pyz, or a bundle of --out, instead of looking",
    )
    add_value(parser, "--out", "FILE.tar.gz", "also write the evidence as a bundle, secrets masked")
    add_format_option(parser, ("table", "json", "evidence"))
    add_verbose(parser)
    add_examples(parser, EXAMPLES)


def _add_node_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that name nodes, as `unhang audit` and `unhang smoke` have them."""
    add_inventory(parser, "look at the nodes of this inventory, by Ansible")
    nodes = (
        "look at these nodes, by Ansible: names or node sets, for example gpu[01-08]; with"
        " --inventory also its groups and patterns"
    )
    add_repeatable(parser, "-l --host", "HOSTS", nodes)
    parser.add_argument(
        "-f",
        "--forks",
        type=int,
        default=64,
        metavar="N",
        help="nodes at a time (default: 64), so that all are seen at one moment",
    )
    parser.add_argument(
        "ansible",
        nargs="*",
        metavar="-- ARGUMENT",
        help="arguments for ansible-playbook, for example -- --become (jobs of other users)",
    )


class InspectOptions(Options, frozen=True):
    """evidence: files to judge; inventory to ansible: which nodes Ansible asks, and how."""

    evidence: list[str] | None
    inventory: list[str] | None
    host: list[str]
    forks: int
    ansible: list[str]


# (options, those of the look) -> the evidence of the nodes that they name; it needs Ansible, and
# the command line hands it over
NodeDocuments = Callable[[InspectOptions, dict[str, Any]], list[dict[str, Any]]]


def run(arguments: argparse.Namespace, node_documents: NodeDocuments) -> int:
    """0 not hung, 1 hung or a rank is slow, 3 not known; nothing to look at raises
    UserError, which gives 2."""
    options, look_options = InspectOptions.of(arguments), chosen_look_options(arguments)
    out = checked_output(arguments.out) if arguments.out else None
    documents = _documents(options, look_options, node_documents)
    nodes = evidence_of(documents)
    if not any(node.ranks for node in nodes):
        by_pid = not (
            look_options["pids"]
            or options.evidence
            or look_options["slurm_job"]
            or options.host
            or options.inventory
        )
        raise UserError(_no_rank(nodes) + (_how_to_read() if by_pid else ""))
    inspection = inspection_of(_one_job(nodes))
    if arguments.format == "json":
        sys.stdout.write(json.dumps(inspection.as_document(), indent=1) + "\n")
    elif arguments.format == "evidence":
        sys.stdout.write(render_evidence(answer_of(inspection)))
    else:
        from unhang.core.terminal import terminal_shape

        width, _colour, plain = terminal_shape(sys.stdout, os.environ)
        sys.stdout.write(
            render_inspection(inspection, plain, width=width, verbose=arguments.verbose)
        )
    if out:  # after the verdict, which a full disk must not cost
        sys.stdout.flush()
        write_bundle(out, documents, inspection)
        for row in inspection.unread:
            if row.what in ("kernel_log", "log_tail") and row.helps:
                helps = row.helps.replace("BUNDLE", shlex.quote(str(out)))
                sys.stderr.write(f"unhang: {out} lacks {row.what}: {helps}\n")
    return EXIT_CODES.get(inspection.state, 0)


def _documents(
    options: InspectOptions, look_options: dict[str, Any], node_documents: NodeDocuments
) -> list[dict[str, Any]]:
    if options.evidence:
        return read_documents([Path(one) for one in options.evidence])
    if options.host or options.inventory:
        return node_documents(options, look_options)
    if job := look_options["slurm_job"]:
        return slurm_documents(job, arguments_of(look_options))
    return [_look_here(look_options)]


def _look_here(options: dict[str, Any]) -> dict[str, Any]:
    if (path := options["kernel_log"]) and not Path(path).is_file():
        raise UserError(f"--kernel-log: there is no file at {path}")
    pids = [word for pid in options["pids"] for word in ("--pid", str(pid))]
    return LookHere().evidence([*pids, *arguments_of(options)])


def _how_to_read() -> str:
    """What finds the job of another user, or one without a launcher's variables, on this
    machine."""
    if os.geteuid() == 0:
        return "; name a process of it with --pid"
    program = program_as_typed()
    path = "$(command -v unhang)" if program == "unhang" else str(Path(program).absolute())
    return f"; next: sudo {path} inspect, or name a process of it with --pid"


def _no_rank(nodes: Sequence[NodeEvidence]) -> str:
    reasons = dict.fromkeys(str(node.probes["ranks"].error) for node in nodes)
    return f"no ranks of a job were found: {'; '.join(reasons)}"


def _one_job(nodes: Sequence[NodeEvidence]) -> Sequence[NodeEvidence]:
    """The nodes, if the ranks of each are of one job. Raises UserError naming the jobs of a node
    that has several, and those that may be meant as one."""
    for node in nodes:
        jobs: dict[str, list[RankRow]] = {}
        for row in node.ranks:
            jobs.setdefault(row.job, []).append(row)
        if len(jobs) > 1:
            named = "; ".join(
                f"--pid {own[0].pid} ({job[:160]})" for job, own in list(jobs.items())[:8]
            )
            raise UserError(
                f"a node has {len(jobs)} jobs, not one; name one: {named}{_if_one_was_meant(jobs)}"
            )
    return nodes


def _if_one_was_meant(jobs: Mapping[str, Sequence[RankRow]]) -> str:
    """Jobs that differ in where they meet alone and have no rank twice are parts of one."""
    meant = {
        (
            *(word for word in job.split() if not word.startswith("MASTER_")),
            own[0].world_size,
        )
        for job, own in jobs.items()
    }
    ranks = [row.rank for own in jobs.values() for row in own]
    if len(meant) > 1 or None in ranks or len(set(ranks)) < len(ranks):
        return ""
    return (
        "; if they are meant as one job, they never meet: start all ranks with one MASTER_ADDR and"
        " MASTER_PORT"
    )
