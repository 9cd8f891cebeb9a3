"""The option --fail-on: from which severity on findings end a command with 1."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from unhang.judge.rules import SEVERITIES

DEFAULT = "warning"  # what is merely worth knowing is shown, and fails no script


def add_fail_on(parser: argparse.ArgumentParser) -> None:
    """Adds the option."""
    parser.add_argument(
        "--fail-on", choices=SEVERITIES[::-1], default=DEFAULT, metavar="SEVERITY",
        help=f"exit with 1 from this severity on: {', '.join(SEVERITIES)} (default: {DEFAULT})",
    )  # fmt: skip


def exit_code(failed: Mapping[str, int], fail_on: str) -> int:
    """1 when any finding is at or above the severity, else 0. failed: severity -> number of findings."""
    return int(any(failed.get(severity) for severity in SEVERITIES[: SEVERITIES.index(fail_on) + 1]))
