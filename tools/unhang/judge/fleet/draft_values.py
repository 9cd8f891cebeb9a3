"""Values of a fact on which a rule fires or not: those in its condition, their neighbours, and
those that the schema allows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes

from unhang.core.schemas.shapes import ANY, Shape
from unhang.judge.rules.expression import parsed
from unhang.judge.rules.rules import Rule
from unhang.judge.rules.syntax import shape_at

MOST_VALUES = 12
MOST_KEYS = 150  # rows of a table; a condition over a table of models must try all of them


NAMES = {"selectattr": 2, "rejectattr": 2, "select": 1, "reject": 1, "sort": 1}
"""How many of a filter's first arguments are names."""
UNNAMED = {
    "vbios": ("96.00.89.00.01", "96.00.a5.00.1a"),
    "kernel": ("6.8.0-45-generic", "6.8.0-60-generic"),
}
"""Versions to try where the condition names none."""


class _Absent:
    """Marks a key that an example does not have."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()


@dataclass(frozen=True)
class Place:
    """A fact or a key of the policy that decides a rule. path: in the notation of rules, with * for
    the items of a list."""

    path: tuple[str, ...]
    shape: Shape
    values: tuple[Any, ...]


def places_of(rule: Rule, tables: Mapping[str, Mapping[str, Any]]) -> list[Place]:
    """Every fact and key of the policy that decides a rule, with values to try."""
    said = (rule.for_each, rule.applies, rule.compare or rule.when)
    sources = [one.source for one in said if one is not None]
    constants = list(_constants(sources))
    keys = _table_keys(rule, sources, tables)
    asked = any("known" in source for source in sources)
    found = []
    for path in sorted({one[:-1] if one[-1] == "*" else one for one in rule.decision_reads}):
        shape = shape_at(path)
        if shape is not ANY:
            may_lack = path[0] == "policy" or asked
            values = [
                *keys.get(path, []),
                *_values(shape, constants),
                *([ABSENT] if may_lack else []),
            ]
            found.append(Place(path, shape, tuple(values)))
    return found


def _constants(sources: list[str]) -> Iterator[Any]:
    """Constants to which the condition compares; without keys, and the field and the test of
    selectattr('state', 'equalto', …)."""
    for source in sources:
        tree = parsed(source)
        names = {
            id(name)
            for one in tree.find_all(nodes.Filter)
            for name in one.args[: NAMES.get(one.name, 0)]
        }
        names |= {id(one.arg) for one in tree.find_all(nodes.Getitem)}
        yield from (node.value for node in tree.find_all(nodes.Const) if id(node) not in names)
        if isinstance(tree, nodes.Const):
            yield tree.value


def _table_keys(
    rule: Rule, sources: list[str], tables: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[str, ...], list[Any]]:
    """Path of a fact -> the keys of the table that it is looked up in."""
    item = rule.for_each.kind.items().path if rule.for_each is not None else None
    found: dict[tuple[str, ...], list[Any]] = {}
    for source in sources:
        for name, looked_up in re.findall(r"tables\.([a-z0-9_]+)\[([a-z0-9_.]+)\]", source):
            parts = tuple(looked_up.split("."))
            path = (*(item or ()), *parts[1:]) if parts[0] == "item" else parts
            found.setdefault(path, list(tables.get(name, {}))[:MOST_KEYS])
    return found


def _values(shape: Shape, constants: list[Any]) -> list[Any]:
    if shape.kind == "flag":
        return [True, False]
    if shape.values:
        return list(
            dict.fromkeys([one for one in constants if one in shape.values] + list(shape.values))
        )[:MOST_VALUES]
    if shape.kind == "number":
        return _numbers(constants)
    if shape.kind == "list":
        return _lists(shape.item, constants)
    if shape.kind in ("map", "object"):
        return [{}]
    return _versions(constants, shape.version) if shape.version else _texts(constants)


def _numbers(constants: list[Any]) -> list[Any]:
    named = [
        one for one in constants if isinstance(one, (int, float)) and not isinstance(one, bool)
    ]
    return list(
        dict.fromkeys([*named, *(one + step for one in named for step in (1, -1)), 8, 100, 0, 1])
    )[:MOST_VALUES]


def _lists(item: Shape | None, constants: list[Any]) -> list[Any]:
    if item is None or not item.is_scalar:
        return [[], [{}], [{}, {}]]
    named = [one for one in constants if isinstance(one, str)]
    return [
        *([one] for one in named[:MOST_VALUES]),
        [],
        *([named] if len(named) > 1 else []),
        ["another"],
    ]


def _texts(constants: list[Any]) -> list[Any]:
    return list(
        dict.fromkeys([*(one for one in constants if isinstance(one, str)), "another", "one more"])
    )[: MOST_VALUES + 2]


def _versions(constants: list[Any], order: str) -> list[Any]:
    """The versions in the condition, and for each of them an earlier and a later one."""
    named = [one for one in constants if isinstance(one, str) and re.match(r"[0-9]", one)]
    found = list(named)
    for one in named:
        first, rest = re.match(r"([0-9]+)(.*)", one, re.DOTALL).groups()  # type: ignore[union-attr]
        found += [f"{int(first) + step}{rest}" for step in (1, -1) if int(first) + step > 0]
    return list(dict.fromkeys([*found, *UNNAMED.get(order, ("1.0", "2.0"))]))[: MOST_VALUES * 2]
