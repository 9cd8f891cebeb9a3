"""Rules whose remedies propose contradicting keys of the policy for one node. Values in, values
out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from unhang.core.run.documents import InvalidNode
from unhang.judge.rules.examples import verdict_of
from unhang.judge.rules.node_rules import CatalogueView
from unhang.judge.rules.remedies import PolicyRequest, merge_requests
from unhang.judge.rules.rules import Rule


def clashing_rules(rule: Rule, others: tuple[Rule, ...], view: CatalogueView) -> Iterator[str]:
    """Ids of the rules whose advice contradicts this one's and that fire on a node with both
    faults."""
    for other in others if rule.scope == "node" and _asks(rule).policy else ():
        if (
            other.id != rule.id
            and other.scope == "node"
            and merge_requests([_asks(rule), _asks(other)]).conflicts
            and _can_both_fire(rule, other, view)
        ):
            yield other.id


def _asks(rule: Rule) -> PolicyRequest:
    return PolicyRequest(rule.id, rule.row["remedy"].get("policy") or {})


def _can_both_fire(one: Rule, other: Rule, view: CatalogueView) -> bool:
    """Whether a match of each rule, joined into one node, causes both findings."""
    for first, second in itertools.product(
        one.row["examples"]["match"], other.row["examples"]["match"]
    ):
        node = _joined(first, second)
        try:
            if node is not None and all(
                verdict_of(rule, node, view) == "fail" for rule in (one, other)
            ):
                return True
        except InvalidNode:
            continue
    return False


def _joined(one: Any, other: Any) -> Any:
    """Two examples as one node, None where they give one fact different values. Lists are
    joined."""
    if isinstance(one, dict) and isinstance(other, dict):
        found = {**one, **other}
        for key in one.keys() & other.keys():
            found[key] = _joined(one[key], other[key])
            if found[key] is None:
                return None
        return found
    if isinstance(one, list) and isinstance(other, list):
        return one if one == other else one + other
    return one if one == other else None
