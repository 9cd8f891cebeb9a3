"""`unhang gate-step`: called by playbooks/preprovision.yml on the controller. No help lists it."""

from __future__ import annotations

import argparse
from pathlib import Path

from unhang.act.gate.records import write_records


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "step",
        choices=("records",),
        help="records: write the admission records of the nodes that passed",
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="run folder")
    parser.add_argument("--key", metavar="FILE", type=Path, help="the gate's private key")
    parser.add_argument(
        "--days", metavar="N", type=int, default=365, help="days until an admission expires"
    )


def run(arguments: argparse.Namespace) -> int:
    """0 with the files written on standard output. Raises UserError."""
    for path in write_records(arguments.run, arguments.key, arguments.days):
        print(path)
    return 0
