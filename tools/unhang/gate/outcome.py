"""gate.json (unhang/gate/1): what was decided of each node. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.gate.deciding import FAIL, NOT_PROVED, PASS

FILE_NAME = "gate.json"


def gate_document(run: str, decisions: Mapping[str, Mapping[str, Any]], reference: str | None, severities: Sequence[str]) -> dict[str, Any]:
    """run: id of the run folder; decisions: {host: {outcome, reasons}}."""
    nodes = [{"host": host, "outcome": row["outcome"], "reasons": list(row["reasons"])} for host, row in decisions.items()]
    totals = {outcome: sum(row["outcome"] == outcome for row in nodes) for outcome in (PASS, FAIL, NOT_PROVED)}
    return {"schema": "unhang/gate/1", "run": run, "reference": reference, "severities": list(severities), "totals": totals, "nodes": nodes}


def exit_code(document: Mapping[str, Any]) -> int:
    """The playbook's own: 0 all pass, 2 a node failed, 4 none failed and not all are proved."""
    totals = document["totals"]
    return 2 if totals[FAIL] else 4 if totals[NOT_PROVED] else 0
