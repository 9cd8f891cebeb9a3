"""Reads only the fields of findings.json that a plan needs: most of that file is evidence and
sources of rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

from unhang.core.run.findings import read_findings


class PlannedFinding(TypedDict, total=False):
    """A finding. Its values are those of the schema unhang/findings/1."""

    rule: Any
    verdict: Any
    severity: Any
    scope: Any
    host: Any
    hosts: Any
    where: Any
    remedy: Any
    expected: Any


class PlannedFindings(TypedDict, total=False):
    """The document, reduced to its version and the fields that the command line's filters need."""

    schema: Any
    causes: Any
    run: Any
    judged_by: Any
    node_verdicts: Any
    totals_by_rule: Any
    findings: list[PlannedFinding]


def read_planned_findings(folder: Path) -> dict[str, Any]:
    """findings.json of a run folder with only these fields; the others are skipped without decoding
    them. Raises UserError."""
    return read_findings(folder, fields=PlannedFindings)
