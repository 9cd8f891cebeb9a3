"""Judges a rule without a node's own facts. If it needs none of them, its verdict holds for all nodes that are otherwise equal."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from unhang.audit.judge.node_rules import Judged, judge_rule
from unhang.audit.judge.own_facts import is_own
from unhang.audit.judge.rules import Rule
from unhang.audit.judge.values import World
from unhang.schemas.shapes import Shape

_INDEX = re.compile(r"\[[^\]]*\]")


class OwnFactRead(Exception):
    """The rule has read a fact that by its nature differs from node to node."""


class _WithoutOwn(World):
    """A world that gives all facts except a node's own."""

    __slots__ = ()
    gives_every_fact = False

    def with_item(self, item: Any) -> World:
        return _WithoutOwn({**self.roots, "item": item}, self.why_null, self.budget)

    def wrap(self, value: Any, shape: Shape | None, path: str) -> Any:
        if _is_own(_INDEX.sub(".*", path)):
            raise OwnFactRead(path)
        return super().wrap(value, shape, path)


@lru_cache(maxsize=4096)
def _is_own(path: str) -> bool:
    return is_own(tuple(path.split(".")))


def equal_decisions(rule: Rule, world: World) -> list[Judged] | None:
    """The verdicts, if the rule passes or does not apply without reading a fact of the node's own; None for any other verdict, because its texts may quote
    such facts."""
    if rule.scope != "node" or ("host",) in rule.decision_reads:
        return None
    try:
        found = judge_rule(rule, _WithoutOwn(world.roots, world.why_null))
    except OwnFactRead:
        return None
    return found if all(one.verdict in ("pass", "skip") for one in found) else None
