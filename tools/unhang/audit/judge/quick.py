"""The quick form of a rule: from plain values it decides "pass" or "does not apply", or leaves the decision to the full judge.

Rules over measured numbers are judged for every node, and nearly all of them pass. The quick form records no paths and no evidence. If a fact was not read,
or if it finds a fault, a long list or an unexpected kind of value, it decides nothing and the rule is judged in full. So its results always equal those of
the full judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from unhang.audit.judge.node_rules import Judged
from unhang.audit.judge.quick_compiler import ItemsCompiler, QuickCompiler
from unhang.audit.judge.quick_values import MOST_ITEMS, NO_ANSWER, Absent, Ask, NodeView, NotQuick, NoValue, Quick, WhyNull, outcome
from unhang.audit.judge.rules import Rule
from unhang.audit.judge.syntax import ExpressionError, Kind
from unhang.audit.judge.values import STEPS
from unhang.schemas.shapes import Shape, fact_shapes


@dataclass(frozen=True)
class QuickRule:
    """The quick form of a rule of scope node."""

    applies: Quick | None
    each: Quick | None
    each_base: Quick | None  # the list in the facts from which `each` chooses
    each_path: str
    claim: Quick

    def judge(self, sections: Any, why: WhyNull) -> tuple[list[Judged], bool] | None:
        """The result of judge_rule if the rule passes or is skipped, and whether unread parts of its lists matter too; else None."""
        try:
            node = NodeView(sections, None, str, why)
            if self.applies is not None and not outcome(self.applies, node):
                return [Judged("skip")], False
            if self.each is not None:
                return self._of_items(sections, why, self.each(node)), True
            verdict = self._verdict(node)
            return [Judged(verdict)], verdict == "pass"
        except (*NO_ANSWER, NoValue, Absent):
            return None

    def _verdict(self, seen: NodeView) -> str:
        found = outcome(self.claim, seen)
        if found is True:
            raise Ask
        return "pass" if found is False else "skip"

    def _of_items(self, sections: Any, why: WhyNull, items: list[Any]) -> list[Judged]:
        """One verdict for all items that pass and one for all that are skipped, each with the path of its first item."""
        if not items or len(items) > MOST_ITEMS or None in items:
            raise Ask
        alike: dict[str, list[Any]] = {}
        for item in items:
            alike.setdefault(self._verdict(NodeView(sections, item, partial(self._path, sections, why, item), why)), []).append(item)
        return [Judged(verdict, self._path(sections, why, same[0]), items=len(same)) for verdict, same in alike.items()]

    def _path(self, sections: Any, why: WhyNull, item: Any) -> str:
        assert self.each_base is not None
        base = self.each_base(NodeView(sections, None, str, why))
        return f"{self.each_path}[{next(place for place, one in enumerate(base) if one is item)}]"


@dataclass(frozen=True)
class QuickApplies:
    """The quick form of a rule's `applies`: decides "does not apply", or nothing."""

    applies: Quick

    def judge(self, sections: Any, why: WhyNull) -> tuple[list[Judged], bool] | None:
        """As QuickRule.judge."""
        try:
            return None if outcome(self.applies, NodeView(sections, None, str, why)) else ([Judged("skip")], False)
        except (*NO_ANSWER, NoValue, Absent):
            return None


def quick_applies(rule: Rule, tables: Mapping[str, Any], tables_shape: Shape) -> QuickApplies | None:
    """The quick form of `applies`, or None when it has none."""
    if rule.scope != "node" or rule.applies is None or "item" in rule.applies.uses:
        return None
    names = {name: Kind(shape, (name,)) for name, shape in fact_shapes().items()} | {"tables": Kind(tables_shape)}
    compiler = QuickCompiler(names, tables)
    try:
        applies = compiler.expression(rule.applies)
    except (NotQuick, ExpressionError):
        return None
    return None if MOST_ITEMS * compiler.steps > STEPS // 2 else QuickApplies(applies)


def quick_rule(rule: Rule, tables: Mapping[str, Any], tables_shape: Shape) -> QuickRule | None:
    """The quick form of a rule, or None when it has none."""
    if rule.scope != "node" or rule.when is None or (rule.applies is not None and rule.for_each is not None and "item" in rule.applies.uses):
        return None
    names = {name: Kind(shape, (name,)) for name, shape in fact_shapes().items()} | {"tables": Kind(tables_shape)}
    try:
        each = None if rule.for_each is None else ItemsCompiler(names, tables, rule.for_each)
        item = {} if rule.for_each is None else {"item": rule.for_each.kind.items()}
        compiler = QuickCompiler(names | item, tables)
        applies = None if rule.applies is None else compiler.expression(rule.applies)
        claim = compiler.expression(rule.when)
    except (NotQuick, ExpressionError):
        return None
    if MOST_ITEMS * compiler.steps + (each.steps if each else 0) > STEPS // 2:
        return None
    return QuickRule(applies, each.run if each else None, each.base if each else None, each.path if each else "", claim)
