"""`unhang lint FILE…`: finds settings of NCCL and torch that do nothing, do harm or hide a fault,
and collectives that only some ranks call."""

from __future__ import annotations

import argparse
import json
import sys

from unhang.core.commands.common_options import (
    add_examples,
    add_format_option,
    add_quiet,
    add_value,
)
from unhang.core.commands.row_filters import add_rule_and_severity, check_rules, selected
from unhang.core.commands.row_output import show_rows
from unhang.core.errors import UserError
from unhang.core.secrets_in_text import masked_document
from unhang.jobs.lint.checks import PLATFORMS, Context, torch_release
from unhang.jobs.lint.knowledge import rules
from unhang.jobs.lint.linting import (
    SEVERITIES,
    is_whole,
    lint,
    render_table,
    totals_of,
)
from unhang.jobs.lint.sarif import render_sarif
from unhang.jobs.lint.settings import KINDS
from unhang_node.base.versions.fields import nccl_fields

CLOUDS = {"aws": "amazon", "gcp": "google", "gke": "google", "azure": "hyperv"}
COLUMNS = ("severity", "rule", "file", "line", "found", "why", "instead", "source")
FORMATS = ("table", "csv", "json", "sarif")
EXAMPLES = """\
  unhang lint train.sbatch train.py                 before sbatch
  unhang lint jobs/ -o sarif > lint.sarif           all scripts of a repository, for its code host
  helm template chart/ | unhang lint - --kind kubernetes
  unhang lint Dockerfile --nccl 2.27.5 --fail-on error"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    read = (
        "shell scripts, Slurm batch files, Dockerfiles, YAML of Kubernetes and others, jobs of"
        " Nomad, systemd units, nccl.conf, Python; folders too; -: standard input"
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help=read)
    parser.add_argument(
        "--kind", choices=KINDS, help="read every file as this kind, without detection"
    )
    add_value(
        parser,
        "--nccl",
        "VERSION",
        "the job's NCCL version, for example 2.21.5 (default: the version that the file"
        " installs, if any)",
    )
    add_value(parser, "--torch", "VERSION", "the job's PyTorch version, for example 2.4.1")
    clouds = "the cloud, or aws, gcp, azure; settings of its own image are not reported"
    parser.add_argument(
        "--platform", type=lambda given: CLOUDS.get(given, given), choices=PLATFORMS, help=clouds
    )
    add_format_option(parser, FORMATS)
    add_quiet(parser)
    add_rule_and_severity(parser, "hides-fault, 'pod-*'", SEVERITIES)
    parser.add_argument(
        "--fail-on",
        choices=SEVERITIES,
        default="warning",
        metavar="SEVERITY",
        help="exit with 1 at this severity or above: error, warning (default), info",
    )
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0 nothing found, 1 findings at or above --fail-on, 2 too much to read all of it. Raises
    UserError for a file that cannot be read."""
    for option, given, read in (
        ("--nccl", arguments.nccl, nccl_fields),
        ("--torch", arguments.torch, torch_release),
    ):
        try:
            read(given or "0")
        except ValueError:
            raise UserError(f"{option} takes a version such as 2.21.5, not {given!r}") from None
    check_rules(arguments.rule, rules())
    context = Context(arguments.nccl, arguments.torch, arguments.platform)
    document = lint(arguments.files, context, arguments.kind)
    findings = selected(
        document["findings"], "rule", (arguments.rule, arguments.severity), SEVERITIES
    )
    document |= {"findings": findings, "totals": totals_of(findings)}
    if arguments.format == "csv":
        show_rows(arguments.format, arguments.quiet, lambda width: (), findings, COLUMNS)
    elif not arguments.quiet:
        shown, is_json = masked_document(document), arguments.format == "json"
        render = render_sarif if arguments.format == "sarif" else render_table
        sys.stdout.write(json.dumps(shown, indent=1) + "\n" if is_json else render(shown))
    severe = SEVERITIES[: SEVERITIES.index(arguments.fail_on) + 1]
    return int(any(document["totals"][word] for word in severe)) if is_whole(document) else 2
