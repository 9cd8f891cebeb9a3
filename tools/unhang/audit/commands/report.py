"""`unhang report RUN`: shows a judged run as one screen, table, JSON or page."""

from __future__ import annotations

import argparse
from pathlib import Path

from unhang.audit.commands.fail_on import add_fail_on, exit_code
from unhang.audit.commands.filters import add_filters, filtered
from unhang.audit.commands.report_ticket import TicketOptions, write_ticket
from unhang.audit.commands.run_output import ShownRun, add_format, page_of, run_of_file, show
from unhang.audit.report.phrases import rules_left_out
from unhang.core.commands.common_options import (
    add_examples,
    add_repeatable,
    add_value,
)
from unhang.core.errors import UserError
from unhang.core.path_arguments import checked_output
from unhang.core.run import run_folder
from unhang.core.run.findings import read_findings
from unhang.core.run.handed_over import HandedOver

EXAMPLES = """\
  unhang report                                        the last run as one screen
  unhang report -v --host 'gpu[001-016]'               every finding on these nodes
  unhang report -o json --rule nvlink-some-inactive | jq -r '.causes[].nodes[]'   the nodes alone, one a line
  unhang report 20261120T043323Z-a8229f1434 -o html    the page of an older run
  unhang report --owner vendor                         what the hardware's vendor has to repair
  unhang report --host gpu007 -o ticket                a ticket for the vendor of this node
  unhang report -o html --smoke result.json            with a smoke test's phases and bandwidth"""  # noqa: E501


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        default=run_folder.latest_run(),
        help="run folder or its id, or a file of findings (default: %(default)s)",
    )
    add_format(parser, {"ticket": "one node's hardware faults for its vendor"})
    add_filters(parser)
    add_value(
        parser,
        "--out",
        "FILE",
        "write to this file; - is standard output; html: default RUN/report.html",
    )
    add_repeatable(parser, "--smoke", "FILE", "html: add this smoke test result; repeatable")
    add_fail_on(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace, given: HandedOver) -> int:
    """Exit code: 0 nothing found, 1 findings, 2 if the run is incomplete (as of judge). Raises
    UserError if it cannot be read."""
    if arguments.out not in (None, "-"):
        checked_output(arguments.out)
    if arguments.smoke and arguments.format != "html":
        raise UserError("--smoke needs --format html, which draws it")
    file = Path(arguments.run)
    beside = file if file.is_file() else None
    folder = run_of_file(file) if beside else run_folder.find_run(arguments.run)
    findings = read_findings(folder, beside)
    if arguments.format == "ticket":
        return write_ticket(folder, findings, TicketOptions.of(arguments))
    options = ShownRun.of(arguments)
    shown = filtered(folder, findings, options)

    def page() -> str:
        return page_of(folder, shown, arguments.run, given, beside, arguments.smoke)

    show(folder, shown, options, arguments.run, page, arguments.out)
    return 2 if rules_left_out(shown) else exit_code(shown, options.fail_on)
