"""`unhang report RUN`: shows a judged run as table, JSON or page."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from unhang import run_folder
from unhang.commands.fail_on import add_fail_on, exit_code
from unhang.given_files import checked_output
from unhang.project import program_as_typed
from unhang.report.html import render_html
from unhang.report.json import render_json
from unhang.report.phrases import left_out
from unhang.report.run import read_findings
from unhang.report.table import PIPED_WIDTH, render_table, terminal_shape

FORMATS = ("table", "json", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which run, and how to show it."""
    parser.add_argument("run", metavar="RUN", nargs="?", default=run_folder.latest_run(), help="run folder or its id (default: %(default)s)")
    parser.add_argument("--format", choices=FORMATS, default="table", help="table (default), json, or html, which is written to RUN/report.html")
    parser.add_argument("--out", metavar="FILE", help="write there instead; - is standard output")
    add_fail_on(parser)


def run(arguments: argparse.Namespace) -> int:
    """0 nothing found, 1 findings, 2 when the run is not the whole answer (as judge says it); what cannot be read raises UserError."""
    if arguments.out not in (None, "-"):
        checked_output(arguments.out)
    folder = run_folder.find_run(arguments.run)
    findings = read_findings(folder)
    if arguments.format == "html":
        out = arguments.out or str((Path(arguments.run) if Path(arguments.run).is_dir() else folder) / "report.html")
        deliver(render_html(folder, run_name=arguments.run), out)
        if out != "-":
            print(out)
    elif arguments.format == "json":
        deliver(render_json(findings), arguments.out or "-")
    elif arguments.out in (None, "-"):
        width, colour, plain = terminal_shape(sys.stdout, os.environ)
        table = render_table(findings, width, colour, plain=plain, full=not sys.stdout.isatty(), run=arguments.run, program=program_as_typed())
        deliver(table, "-")
    else:
        deliver(render_table(findings, PIPED_WIDTH, run=arguments.run, program=program_as_typed()), arguments.out)
    if left_out(findings) or (findings["host_count"] and not findings["nodes"].get("ok")):
        return 2
    return exit_code(findings["totals_by_severity"], arguments.fail_on)


def deliver(text: str, out: str) -> None:
    """Writes `text` to standard output (`-`) or, at once and whole, to a file."""
    if out == "-":
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
        return
    run_folder.write_atomically(Path(out), text)
