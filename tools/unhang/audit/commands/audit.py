"""`unhang audit`: reads the nodes of an inventory, by playbooks/audit.yml or another way, and
judges the run."""

from __future__ import annotations

import argparse
import shutil
import sys

from unhang.audit.commands.audit_ways import WAYS, ReadOptions, folder_of, read_nodes
from unhang.audit.commands.judge import judge_run
from unhang.audit.commands.judging_options import (
    JudgingOptions,
    add_judging_options,
    check_judging_options,
)
from unhang.audit.commands.run_news import report_run
from unhang.audit.ways.run_deadline import DEADLINE_S
from unhang.core import project
from unhang.core.commands.common_options import (
    add_examples,
    add_inventory,
    add_out,
    add_repeatable,
    add_value,
)
from unhang.core.commands.hooks import Hooks
from unhang.core.commands.typed_values import today_or
from unhang.core.errors import UserError
from unhang.core.run import run_folder
from unhang.core.run.handed_over import HandedOver

LONGEST_DEADLINE_S = 366 * 86400.0

EXAMPLES = """\
  unhang audit                                                        this machine
  unhang audit -i inventory/mycluster -l 'gpu[001-016]' -f 64         16 nodes of a cluster
  unhang audit -i inventory/mycluster --severity critical             the nodes that must leave service
  unhang audit -i inventory/mycluster --policy next.yml -- --become   by another policy, with root on the nodes
  kubectl logs -l app=unhang --tail=-1 | unhang audit --via files -   documents that came by other ways: standard input, a folder, a tar
  unhang audit --via slurm --slurm-job 1234                           the nodes of your job, by srun
  unhang audit --continue latest                                      only the nodes that the last audit could not read"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_inventory(parser)
    nodes = "read only these: node sets (gpu[001-016]), groups, Ansible patterns"
    add_repeatable(parser, "-l --host", "HOSTS", nodes)
    parser.add_argument("-f", "--forks", type=int, metavar="N", help="nodes to read at a time")
    parser.add_argument(
        "--via",
        choices=WAYS,
        default=WAYS[0],
        metavar="WAY",
        help=f"how the nodes are read: {', '.join(WAYS)} (default: {WAYS[0]})",
    )
    deadline = (
        "cut the nodes that have not answered after this time, name them and judge the others"
        f" (default: {DEADLINE_S:g})"
    )
    add_value(parser, "--deadline", "SECONDS", deadline, float, DEADLINE_S)
    add_value(
        parser,
        "--slurm-job",
        "ID",
        "--via slurm: the nodes of this running job (default: $SLURM_JOB_ID, else idle nodes)",
    )
    add_repeatable(parser, "--slurm-partition", "NAME", "--via slurm: only nodes of this partition")
    parser.add_argument(
        "--continue",
        dest="go_on",
        metavar="RUN",
        help="read only the nodes that this run could not read, into the same run",
    )
    add_out(parser)
    add_judging_options(parser, "the inventory's unhang_policy", is_new=True)
    help_text = (
        "arguments for ansible-playbook, for example -- -e unhang_node_timeout_s=60 --become; with"
        " --via files: a folder, a tar, files, -"
    )
    parser.add_argument("ansible", nargs="*", metavar="-- ARGUMENT|FILE", help=help_text)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace, given: HandedOver) -> int:
    """0 nothing found, 1 findings, 2 the command failed."""
    arguments.limit, arguments.host = ",".join(arguments.host) or None, []
    reading, judging = ReadOptions.of(arguments), JudgingOptions.of(arguments)
    hooks, folder = Hooks.of(arguments), None
    try:
        _check_reading(reading)
        check_judging_options(judging, hooks)
        folder = folder_of(reading)
        is_whole = read_nodes(reading, folder)
    except KeyboardInterrupt:
        if folder and not reading.go_on and (folder / "run.json").is_file():
            raise
        raise UserError(
            "it was stopped by hand, before a node was asked; nothing was read"
        ) from None
    if run_folder.read_run(folder).document.get("finished") is None:
        # the callback unhang_run has printed the reason, and how to judge the nodes that were read
        return 2
    try:
        # this policy was the run's own, so the findings are too
        code = judge_run(folder, run_folder.as_typed(folder), judging, given, today_or(None))
    except KeyboardInterrupt:
        raise UserError(
            "it was stopped by hand; every node was asked; judge what was seen with:"
            f" {project.program_as_typed()} judge {run_folder.as_typed(folder)}"
        ) from None
    report_run(folder, hooks, judging.fail_on)
    return code if is_whole else 2


def _check_reading(options: ReadOptions) -> None:
    """Raises UserError for hosts in the place of Ansible's options, and for an impossible number of
    forks."""
    if options.via != "files" and options.ansible and not options.ansible[0].startswith("-"):
        found = options.ansible[0]
        raise UserError(
            f"behind --, {found!r} is not an option of ansible-playbook; give hosts with"
            " --host, inventories with --inventory"
        )
    if options.forks is not None and options.forks < 1:
        raise UserError(f"--forks takes a number of nodes from 1 on, not {options.forks}")
    if not 0 < options.deadline < LONGEST_DEADLINE_S:
        raise UserError(
            f"--deadline takes seconds from more than 0 to a year, not {options.deadline:g}"
        )
    given = {"slurm-job": options.slurm_job, "slurm-partition": options.slurm_partition}
    named = [name for name, value in given.items() if value]
    if len(named) > 1 or (named and options.via != "slurm"):
        raise UserError(
            f"--{' and --'.join(named)} cannot be given together with --via {options.via}: one of"
            " --slurm-job and --slurm-partition is allowed, and only with --via slurm"
        )
    if options.via != "files" and options.inventory and shutil.which("ssh") is None:
        sys.stderr.write(
            "unhang: ssh is not in PATH; nodes that are reached by ssh will not be read"
            " (openssh-client has it)\n"
        )
