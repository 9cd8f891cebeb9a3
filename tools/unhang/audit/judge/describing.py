"""The texts of findings and the places that they are about. Most are equal on all nodes with the finding, so they are cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unhang.audit.judge.expression import Path
from unhang.audit.judge.extract import has_fractions, taker
from unhang.audit.judge.node_rules import Judged, NodeView, finding_texts
from unhang.audit.judge.rules import Rule
from unhang.audit.judge.values import RuleStopped, Undecided, World
from unhang.schemas.shapes import fact_shapes, policy_shape

MOST_REMEMBERED = 100_000


class Describer:
    """Describes verdicts of one catalogue's rules on node after node."""

    def __init__(self, rules: Sequence[Rule]):
        self.rules = rules
        self._text_takers = [_takers(rule.text_reads - rule.decision_reads) for rule in rules]
        self._texts: dict[Any, dict[str, str]] = {}
        self._wheres: dict[Any, dict[str, Any]] = {}  # places of findings over rows of tables

    def describe(
        self, number: int, judged: Judged, node: NodeView, world: Callable[[], World], known: dict[int, dict[str, Any]],
    ) -> tuple[dict[str, str], dict[str, Any]]:  # fmt: skip
        """The texts of a finding (cached), and its place (on this node). known: rule -> its items on this node."""
        rule = self.rules[number]
        takers, is_spelt = self._text_takers[number]
        values = tuple([_taken(node, path, take) for path, take in takers])
        key = (number, judged, repr(values) if is_spelt else values)
        found = self._texts.get(key)
        where = self._where(rule, number, judged, node.sections)
        if found is not None and where is not None:
            return found, where
        if judged.item is not None and number not in known:
            known[number] = self._items(rule, world())
        items = {} if judged.item is None else known[number]
        if found is None:
            found = finding_texts(rule, world(), judged, items)
            if len(self._texts) < MOST_REMEMBERED:
                self._texts[key] = found
        if where is None:
            where = where_of(rule, judged, getattr(items.get(judged.item or ""), "value", None))
        if judged.item is not None and judged.item.startswith("tables.") and len(self._wheres) < MOST_REMEMBERED:
            self._wheres[number, judged] = where
        return found, where

    def _where(self, rule: Rule, number: int, judged: Judged, sections: Any) -> dict[str, Any] | None:
        """The place of a finding, without evaluating its list: cached for a row of a table, else from the facts. None if unknown."""
        if judged.item is None:
            return where_of(rule, judged, None)
        if rule.for_each is None or rule.for_each.kind.items().path is None:
            return self._wheres.get((number, judged))
        holder, above = sections, None
        try:
            for part in judged.item.split("."):
                name, _, index = part.partition("[")
                above = holder
                holder = getattr(holder, name)
                holder = holder[int(index[:-1])] if index else holder
        except (LookupError, AttributeError, TypeError, ValueError):
            return None
        device = getattr(above, "name", None)  # a port has only a number; people know it by its device
        return where_of(rule, judged, holder) | ({"name": device} if isinstance(device, str) and "name" not in rule.where_fields else {})

    def _items(self, rule: Rule, world: World) -> dict[str, Any]:
        assert rule.for_each is not None
        world.begin()
        try:
            return {one.path: one for one in world.items(rule.for_each.evaluate(world)) if hasattr(one, "path")}
        except (Undecided, RuleStopped):
            return {}


def where_of(rule: Rule, judged: Judged, value: Any) -> dict[str, Any]:
    """The item of a finding: its path and the fields that name it, or the text itself. value: of the item."""
    if judged.items > 1:
        return {"items": judged.items}
    if judged.item is None:
        return {}
    if isinstance(value, str):
        return {"path": judged.item, "value": value}
    named = {name: value.get(name) if isinstance(value, dict) else getattr(value, name, None) for name in rule.where_fields}
    return {"path": judged.item, **{name: one for name, one in named.items() if one is not None and not isinstance(one, (list, dict))}}


def context_of(node: NodeView, name: str) -> Any:
    return {"host": node.host, "groups": node.groups, "run_status": node.run_status, "message": node.message, "policy_error": node.policy_error}.get(name)


def _takers(paths: frozenset[Path]) -> tuple[list[tuple[Path, Any]], bool]:
    """(the reader of each path, whether its values may contain equal numbers that are written in two ways)."""
    shapes = {**fact_shapes(), "policy": policy_shape()}
    takers = [(path, taker(shapes[path[0]], path[1:]) if path[0] in shapes else None) for path in sorted(paths)]
    return takers, any(path[0] == "policy" or has_fractions(shapes.get(path[0]), path[1:]) for path in paths)


def _taken(node: NodeView, path: Path, take: Any) -> Any:
    name = path[0]
    if name not in fact_shapes() and name != "policy":
        return context_of(node, name)
    holder = node.policy if name == "policy" else getattr(node.sections, name, None)
    return None if holder is None else take(holder) if take is not None else None
