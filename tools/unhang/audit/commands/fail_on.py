"""The option --fail-on: the lowest severity of findings that makes a command exit with 1."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from unhang.judge.rules.rules import SEVERITIES

DEFAULT = "warning"  # a finding of info is shown, but does not make a script fail


def add_fail_on(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-on", choices=SEVERITIES[::-1], default=DEFAULT, metavar="SEVERITY",
        help=f"exit with 1 at this severity or above: {', '.join(SEVERITIES)} (default: {DEFAULT}); a node that was not read counts as an error, as does a run without any GPU node",  # noqa: E501
    )  # fmt: skip


def exit_code(findings: Mapping[str, Any], fail_on: str) -> int:
    """2 if no node was read; 1 if a finding is at or above the severity, or if a node was not read
    or no node of the run has a GPU (which count as errors); else 0.

    findings: the object of findings.json, or its head.
    """
    unread = len(findings["node_verdicts"]["unread"])
    if unread and unread == findings["host_count"]:
        return 2
    counted = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    return int(
        ((unread or is_without_gpu_nodes(findings)) and "error" in counted)
        or any(findings["totals_by_severity"].get(severity) for severity in counted)
    )


def is_without_gpu_nodes(findings: Mapping[str, Any]) -> bool:
    """Whether no node of a run is a GPU node: nothing of what the rules are for was looked at."""
    return 0 < findings["host_count"] == len(findings.get("without_gpus") or ())
