"""`unhang report RUN`: shows a judged run as one screen, table, JSON or page."""

from __future__ import annotations

import argparse

from unhang import run_folder
from unhang.commands.fail_on import add_fail_on, exit_code
from unhang.commands.showing import add_format, show
from unhang.given_files import checked_output
from unhang.report.phrases import left_out
from unhang.report.run import read_findings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, and how to show it."""
    parser.add_argument("run", metavar="RUN", nargs="?", default=run_folder.latest_run(), help="run folder or its id (default: %(default)s)")
    add_format(parser)
    parser.add_argument("--out", metavar="FILE", help="write there instead; - is standard output; html: RUN/report.html unless told")
    add_fail_on(parser)


def run(arguments: argparse.Namespace) -> int:
    """0 nothing found, 1 findings, 2 when the run is not the whole answer (as judge says it); what cannot be read raises UserError."""
    if arguments.out not in (None, "-"):
        checked_output(arguments.out)
    folder = run_folder.find_run(arguments.run)
    findings = read_findings(folder)
    show(folder, findings, arguments, arguments.out)
    if left_out(findings) or (findings["host_count"] and not findings["nodes"].get("ok")):
        return 2
    return exit_code(findings["totals_by_severity"], arguments.fail_on)
