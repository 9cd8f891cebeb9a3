"""Finds the rules that fire because of a version: each rule's own examples are judged again with
that version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unhang.audit.rules.compiled_catalogue import Catalogue
from unhang.audit.rules.examples import CatalogueView, catalogue_view, verdict_of
from unhang.audit.rules.rules import Rule
from unhang.core.run.documents import InvalidNode

# a rule that fires on a larger share of the known versions does not read the version itself, but
# whether two versions are equal
MOST_SHARE = 0.9


def rules_that_fire(catalogue: Catalogue, path: tuple[str, ...], version: str) -> str:
    """'critical driver-545-23-08-p2p-deadlock (Driver 545.23.08 deadlocks …); …', or ''. path: of
    the version in the facts, with * for lists."""
    return "; ".join(
        f"{rule.severity} {rule.id} ({rule.row['title']})"
        for rule in _firing(catalogue, path, version)
    )


def _firing(catalogue: Catalogue, path: tuple[str, ...], version: str) -> Iterator[Rule]:
    view = catalogue_view(catalogue.tables, tuple(rule.id for rule in catalogue.rules))
    others = _others(catalogue, path[0])
    order = {"critical": 0, "error": 1, "warning": 2, "info": 3}
    for rule in sorted(catalogue.rules, key=lambda one: order[one.severity]):
        if (
            rule.scope != "node"
            or path not in rule.decision_reads
            or not _fires(rule, path, version, view)
        ):
            continue
        if sum(_fires(rule, path, other, view) for other in others) <= MOST_SHARE * len(others):
            yield rule


def _others(catalogue: Catalogue, section: str) -> list[str]:
    """Versions to compare with: one of each branch of the driver, or each NCCL that a wheel has."""
    if section == "driver":
        return [
            row["latest"]
            for row in catalogue.tables.get("driver_branches", {}).values()
            if "latest" in row
        ]
    return sorted({row["nccl"] for row in catalogue.tables.get("nccl_wheels", {}).values()})


def _fires(rule: Rule, path: tuple[str, ...], version: str, view: CatalogueView) -> bool:
    try:
        # a policy's request tells nothing about a version
        examples = [one for one in rule.row["examples"]["match"] if "policy" not in one]
        return any(
            verdict_of(rule, _with(example, path, version), view) == "fail" for example in examples
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
