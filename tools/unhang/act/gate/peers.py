"""Differences of a new node from its peers, by the audit's own drift rules. Values in, values out.
A node is compared with the reference, or without one with the nodes that have no fault of their
own: the value of a faulty node says nothing about its neighbours. Three healthy peers of which most
agree decide; fewer, or a tie, leave the node not proved."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

LONGEST = 200  # characters of a value in a line for people
ENOUGH_PEERS = 3  # with two, each of two values may be the wrong one


@dataclass(frozen=True)
class PeerDifference:
    """rule, title, severity: of the drift rule. found, expected: values of this node and of its
    peers, as shortened by the judge. by: the owner of the expected value. decided: whether the
    peers are enough to call this node's value wrong."""

    rule: str
    title: str
    severity: str
    found: Any
    expected: Any
    by: str
    decided: bool

    def line(self) -> str:
        return (
            f"{self.rule}: {self.title}: found {shown(self.found)}, {self.by}"
            f" {shown(self.expected)}"
        )

    def row(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "severity": self.severity,
            "found": self.found,
            "expected": self.expected,
            "by": self.by,
        }


def is_drift(finding: Mapping[str, Any]) -> bool:
    """Whether a finding compares the nodes of a group, value by value."""
    return finding.get("scope") == "group" and bool((finding.get("comparison") or {}).get("counts"))


def peer_difference(
    finding: Mapping[str, Any], host: str, reference: str | None, faulty: Collection[str]
) -> PeerDifference | None:
    """The difference of a host in one drift finding, None if it differs from nobody whose value
    counts. reference: a node that is known to be good, or None. faulty: hosts with a fault of their
    own, which have no vote."""
    counts = finding["comparison"]["counts"]
    own = next((row for row in counts if host in row["hosts"]), None)
    if own is None or host == reference:
        return None
    measured = next((row for row in counts if reference in row["hosts"]), None)
    if measured is not None:
        by, decided = f"the reference {reference} has", reference not in faulty
        return (
            None
            if measured is own
            else _difference(finding, own["value"], measured["value"], by, decided)
        )
    votes = sorted(
        ((row, [one for one in row["hosts"] if one not in faulty]) for row in counts),
        key=lambda vote: -len(vote[1]),
    )
    total = sum(len(voters) for _, voters in votes)
    others = [row["value"] for row, voters in votes if voters and row is not own]
    if not others:
        return None
    first, voters = votes[0]
    if len(voters) * 2 <= total:
        return _difference(
            finding,
            own["value"],
            others,
            "no value is in the majority: other healthy nodes have",
            False,
        )
    enough = total - (host not in faulty) >= ENOUGH_PEERS
    return (
        None
        if first is own
        else _difference(
            finding,
            own["value"],
            first["value"],
            f"{len(voters)} of {total} healthy nodes have",
            enough,
        )
    )


def shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _difference(
    finding: Mapping[str, Any], own: Any, expected: Any, by: str, decided: bool
) -> PeerDifference:
    return PeerDifference(
        finding["rule"], finding.get("title") or "", finding["severity"], own, expected, by, decided
    )
