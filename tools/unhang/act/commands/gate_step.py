"""`unhang gate-step`: called by playbooks/preprovision.yml on the controller. No help lists it."""

from __future__ import annotations

import argparse
from pathlib import Path

from unhang.act.gate.records import write_records
from unhang.core.commands.common_options import (
    add_value,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "step",
        choices=("records",),
        help="records: write the admission records of the nodes that passed",
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="run folder")
    add_value(parser, "--key", "FILE", "the gate's private key", Path)
    add_value(parser, "--days", "N", "days until an admission expires", int, 365)


def run(arguments: argparse.Namespace) -> int:
    """0 with the files written on standard output. Raises UserError."""
    for path in write_records(arguments.run, arguments.key, arguments.days):
        print(path)
    return 0
