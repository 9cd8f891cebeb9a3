"""Finds the rules that fire because of a version: each rule's own examples are judged again with
that version. And the rows of the tables of faults that name it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unhang.core.run.documents import InvalidNode
from unhang.judge.rules.compiled_catalogue import Catalogue
from unhang.judge.rules.examples import CatalogueView, catalogue_view, verdict_of
from unhang.judge.rules.rules import SEVERITIES, Rule
from unhang_node.base.versions.compare import compare_versions, holds

# a rule that fires on a larger share of the known versions does not read the version itself, but
# whether two versions are equal
MOST_SHARE = 0.9


def rules_that_fire(catalogue: Catalogue, path: tuple[str, ...], version: str) -> list[str]:
    """'critical driver-545-23-08-p2p-deadlock (Driver 545.23.08 deadlocks …)' and more, the worst
    first. path: of the version in the facts, with * for lists."""
    return [
        f"{rule.severity} {rule.id} ({rule.row['title']})"
        for rule in _firing(catalogue, path, version)
    ]


def known_faults(catalogue: Catalogue, order: str, version: str) -> list[str]:
    """'error nccl_issues/collnet-hangs-and-corrupts (CollNet hangs …)' and more, the worst first.
    order: nccl, driver, kernel."""
    table = f"{order}_issues"
    return [
        f"{row['severity']} {table}/{key} ({row['says']})"
        for key, row in sorted(
            catalogue.tables[table].items(), key=lambda one: SEVERITIES.index(one[1]["severity"])
        )
        if holds(compare_versions(row["from"], version, order), "<=")
        and holds(compare_versions(row["below"], version, order), ">")
    ]


def _firing(catalogue: Catalogue, path: tuple[str, ...], version: str) -> Iterator[Rule]:
    view = catalogue_view(catalogue.tables, tuple(rule.id for rule in catalogue.rules))
    others = _others(catalogue, path[0])
    for rule in sorted(catalogue.rules, key=lambda one: SEVERITIES.index(one.severity)):
        if (
            rule.scope == "node"
            and path in rule.decision_reads
            and _fires(rule, path, version, view)
            and sum(_fires(rule, path, other, view) for other in others) <= MOST_SHARE * len(others)
        ):
            yield rule


def _others(catalogue: Catalogue, section: str) -> list[str]:
    """Versions to compare with: one of each branch of the driver, or each NCCL that a wheel has."""
    if section == "driver":
        return [
            row["latest"] for row in catalogue.tables["driver_branches"].values() if "latest" in row
        ]
    return sorted({row["nccl"] for row in catalogue.tables["nccl_wheels"].values()})


def _fires(rule: Rule, path: tuple[str, ...], version: str, view: CatalogueView) -> bool:
    try:
        return any(
            verdict_of(rule, _with(example, path, version), view) == "fail"
            for example in rule.row["examples"]["match"]
            if "policy" not in example  # whose request says nothing about a version
        )
    except InvalidNode:
        return False


def _with(value: Any, path: tuple[str, ...], version: str) -> Any:
    """A copy of an example with this version at the path, in every item of a list."""
    if not path:
        return version
    if path[0] == "*":
        return (
            [_with(one, path[1:], version) for one in value] if isinstance(value, list) else value
        )
    if not isinstance(value, Mapping) or path[0] not in value:
        return value
    return {**value, path[0]: _with(value[path[0]], path[1:], version)}
