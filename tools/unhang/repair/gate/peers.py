"""Differences of a new node from its peers, by the audit's own drift rules. Values in, values out. A node is compared with the reference, or without one with
the majority. If there is neither, all values are listed and none is called right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

LONGEST = 200  # characters of a value in a line for people


@dataclass(frozen=True)
class PeerDifference:
    """rule, title, severity: of the drift rule. found, expected: values of this node and of its peers, as shortened by the judge. by: the owner of the
    expected value."""

    rule: str
    title: str
    severity: str
    found: Any
    expected: Any
    by: str

    def line(self) -> str:
        """rule: title: both values."""
        return f"{self.rule}: {self.title}: found {shown(self.found)}, {self.by} {shown(self.expected)}"

    def row(self) -> dict[str, Any]:
        """The difference in the form of gate.json."""
        return {"rule": self.rule, "severity": self.severity, "found": self.found, "expected": self.expected, "by": self.by}


def is_drift(finding: Mapping[str, Any]) -> bool:
    """Whether a finding compares the nodes of a group, value by value."""
    return finding.get("scope") == "group" and bool((finding.get("comparison") or {}).get("counts"))


def peer_differences(finding: Mapping[str, Any], reference: str | None) -> dict[str, PeerDifference]:
    """{host: its difference} of one drift finding. reference: a node that is known to be good, or None."""
    counts = finding["comparison"]["counts"]
    measure, by = _measure(counts, reference)
    return {
        host: PeerDifference(finding["rule"], finding.get("title") or "", finding["severity"], row["value"], _expected(counts, row, measure), by)
        for row in counts
        if row is not measure
        for host in row["hosts"]
    }


def shown(value: Any) -> str:
    """A value in a line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _measure(counts: list[Mapping[str, Any]], reference: str | None) -> tuple[Mapping[str, Any] | None, str]:
    """(the row that the others are measured by or None, whose it is). Rows come most frequent first."""
    mine = next((row for row in counts if reference in row["hosts"]), None)
    if mine is not None:
        return mine, f"the reference {reference} has"
    total = sum(row["count"] for row in counts)
    if counts[0]["count"] * 2 > total:
        return counts[0], f"{counts[0]['count']} of {total} nodes have"
    return None, "no value is in the majority: other nodes have"


def _expected(counts: list[Mapping[str, Any]], own: Mapping[str, Any], measure: Mapping[str, Any] | None) -> Any:
    return measure["value"] if measure is not None else list(_others(counts, own))


def _others(counts: list[Mapping[str, Any]], own: Mapping[str, Any]) -> Iterator[Any]:
    return (row["value"] for row in counts if row is not own)
