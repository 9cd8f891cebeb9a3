"""gate.json (unhang/gate/1): the decision for each node. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.act.gate.deciding import FAIL, NOT_PROVED, PASS

FILE_NAME = "gate.json"


@dataclass(frozen=True)
class SmokeResults:
    """alone: by host, together: of the group, or None (unhang/smoke/1)."""

    alone: Mapping[str, Mapping[str, Any]]
    together: Mapping[str, Any] | None


def gate_document(
    run: str,
    decisions: Mapping[str, Mapping[str, Any]],
    reference: str | None,
    severities: Sequence[str],
    results: SmokeResults = SmokeResults({}, None),
    quick: bool = False,
) -> dict[str, Any]:
    """run: id of the run folder; decisions: {host: {outcome, reasons, differences}}; quick: no
    smoke test was asked for."""
    nodes = [
        {
            "host": host,
            "outcome": row["outcome"],
            "reasons": list(row["reasons"]),
            "differences": list(row.get("differences") or []),
        }
        for host, row in decisions.items()
    ]
    totals = {
        outcome: sum(row["outcome"] == outcome for row in nodes)
        for outcome in (PASS, FAIL, NOT_PROVED)
    }
    together = summary_of(results.together) if results.together else None
    smoke = {
        "alone": {host: summary_of(result) for host, result in results.alone.items()},
        "together": together,
    }
    head = {
        "schema": "unhang/gate/1",
        "run": run,
        "reference": reference,
        "severities": list(severities),
        "quick": quick,
    }
    return {**head, "totals": totals, "nodes": nodes, "smoke": smoke}


def summary_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """{verdict, hosts, world_size, bandwidth: [{op, size_bytes, busbw_gb_s}]} of a smoke test."""
    rows = [row for row in result.get("collectives") or [] if row.get("measures") == "bandwidth"]
    bandwidth = [
        {name: row.get(name) for name in ("op", "size_bytes", "busbw_gb_s")} for row in rows
    ]
    hosts = [row["host"] for row in result.get("hosts") or []]
    return {
        "verdict": result.get("verdict"),
        "hosts": hosts,
        "world_size": result.get("world_size"),
        "bandwidth": bandwidth,
    }


def exit_code(document: Mapping[str, Any]) -> int:
    """0 all pass, 1 a node failed, 3 none failed and not all are proved."""
    totals = document["totals"]
    return 1 if totals[FAIL] else 3 if totals[NOT_PROVED] else 0
