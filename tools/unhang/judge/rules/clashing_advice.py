"""Rules whose remedies propose contradicting keys of the policy for one node. Values in, values
out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from unhang.core.run.documents import InvalidNode
from unhang.judge.rules.examples import verdict_of
from unhang.judge.rules.node_rules import CatalogueView
from unhang.judge.rules.rules import Rule
from unhang_node.base.versions.compare import compare_versions, holds

Key = tuple[str, ...]


def clashing_rules(rule: Rule, others: tuple[Rule, ...], view: CatalogueView) -> Iterator[str]:
    """Ids of the rules whose advice contradicts this one's and that fire on a node with both
    faults."""
    for other in others if rule.scope == "node" and _advice(rule) else ():
        if (
            other.id != rule.id
            and other.scope == "node"
            and contradicts(_advice(rule), _advice(other))
            and _can_both_fire(rule, other, view)
        ):
            yield other.id


def _advice(rule: Rule) -> Mapping[str, Any]:
    return rule.row["remedy"].get("policy") or {}


def contradicts(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Key]:
    """Keys of the policy for which two proposals cannot both be followed. Two least versions can:
    the higher one is followed."""
    first, second = dict(_values(one)), dict(_values(other))
    same = [
        key
        for key in first.keys() & second.keys()
        if key[-1] != "min" and first[key] != second[key]
    ]
    return same + [
        key
        for mine, theirs in ((first, second), (second, first))
        for key in mine
        if key[-1] == "version" and _below(mine, theirs, key)
    ]


def _values(policy: Mapping[str, Any], above: Key = ()) -> Iterator[tuple[Key, Any]]:
    for key, value in policy.items():
        if isinstance(value, dict):
            yield from _values(value, (*above, key))
        else:
            yield (*above, key), value


def _below(mine: Mapping[Key, Any], theirs: Mapping[Key, Any], key: Key) -> bool:
    """Whether a version that one proposes is below the least that the other asks for."""
    least = theirs.get((*key[:-1], "min"))
    return least is not None and holds(compare_versions(mine[key], least, key[0]), "<") is True


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
