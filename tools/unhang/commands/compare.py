"""`unhang compare A B`: where the configuration of two groups, inventories or environments differs."""

from __future__ import annotations

import argparse
import fnmatch
from dataclasses import replace

from unhang.commands.common_options import add_examples, add_format_option, add_quiet
from unhang.commands.row_output import FORMATS, show_rows
from unhang.show.compare.comparing import Comparison, compare
from unhang.show.compare.rendering import COLUMNS, flat_rows_of, render_comparison, rows_of
from unhang.show.compare.sides import read_side

LAUNCHES = ("login", "ssh", "systemd", "slurm", "container")
EXAMPLES = """\
  unhang compare development production                 two groups of the last run's inventory
  unhang compare 'gpu[001-004]' gpu005                  nodes of it
  unhang compare runs/20261118T031500Z-0123456789 latest     two runs: of two inventories, or of two days
  unhang compare latest:training 20261118:training      a group in two runs
  unhang compare gpu001 job.env --launch slurm          the node's settings and what `env` printed in a job
  unhang compare node.json job.json                     unhang collect on the node, and in the job's container"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The two sides, and how to show them."""
    for name in ("a", "b"):
        parser.add_argument(
            name, metavar=name.upper(), help="a group or nodes of --run, a run, RUN:GROUP, a file of unhang collect, or a file of what env printed"
        )
    parser.add_argument("--run", default="latest", metavar="RUN", help="the run that contains the groups and nodes (default: latest)")
    parser.add_argument("--fact", action="append", default=[], metavar="FACT", help="only these: driver, 'nccl.settings*'; repeatable")
    parser.add_argument(
        "--launch",
        choices=LAUNCHES,
        default="slurm",
        metavar="HOW",
        help=f"how the job of the environment file starts: {', '.join(LAUNCHES)} (default: slurm)",
    )
    add_format_option(parser, FORMATS, {"name": "facts that differ, one a line"})
    add_quiet(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """0 nothing differs, 1 something does. Raises UserError."""
    found = _narrowed(compare(read_side(arguments.a, arguments.run), read_side(arguments.b, arguments.run), arguments.launch), arguments.fact)
    rows = flat_rows_of(found) if arguments.format == "csv" else rows_of(found)
    show_rows(arguments, lambda width: render_comparison(found, width), rows, COLUMNS, "fact")
    return int(bool(found.differences))


def _narrowed(found: Comparison, asked: list[str]) -> Comparison:
    """Only the requested facts; `driver` means the whole section."""
    patterns = [one.strip() for given in asked for one in given.split(",") if one.strip()]
    kept = tuple(
        row for row in found.differences if not patterns or any(fnmatch.fnmatchcase(row.fact, one) or row.fact.startswith(f"{one}.") for one in patterns)
    )
    return replace(found, differences=kept)
