"""The one action that fixes most of a run: a role for all causes that it repairs, or a person's
work on one cause. Values in, values out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.core.run.findings import OF_POLICY
from unhang.core.run.run_input import natural

LEAST = "info"  # a cause of this severity needs no action
GRAVE = ("critical", "error")  # while there are such causes, no remark comes before them


@dataclass(frozen=True)
class BestAction:
    """role: None if a person does it; rules: of the causes that it repairs; findings: their number,
    with those above info that the causes explain."""

    role: str | None
    rules: tuple[str, ...]
    nodes: tuple[str, ...]
    findings: int


def best_action(
    causes: Sequence[Mapping[str, Any]], findings: Sequence[Mapping[str, Any]]
) -> BestAction | None:
    """causes and findings: of findings-1. None if there are fewer than two causes to choose from. A
    cause in conflict has no action yet."""
    above = frozenset(place for place, one in enumerate(findings) if one["severity"] != LEAST)
    by_action: dict[str, list[Mapping[str, Any]]] = {}
    for cause in causes:
        acts = cause["severity"] != LEAST and cause["rule"] not in OF_POLICY and not cause["unread"]
        if acts and cause["nodes"] and not cause["remedy"]["conflicts"]:
            by_action.setdefault(cause["remedy"]["role"] or f"\0{cause['id']}", []).append(cause)
    if sum(map(len, by_action.values())) < 2:
        return None
    severe = [one for one in by_action.values() if any(c["severity"] in GRAVE for c in one)]
    return max(
        (_action(members, above) for members in severe or by_action.values()),
        key=lambda one: (one.findings, len(one.nodes), bool(one.role)),
    )


def _action(causes: Sequence[Mapping[str, Any]], above: Collection[int]) -> BestAction:
    nodes = {node for cause in causes for node in cause["nodes"]}
    findings = {place for cause in causes for place in cause["findings"] if place in above}
    rules = dict.fromkeys(cause["rule"] for cause in causes)
    return BestAction(
        causes[0]["remedy"]["role"], tuple(rules), tuple(sorted(nodes, key=natural)), len(findings)
    )
