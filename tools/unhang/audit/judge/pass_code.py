"""Functions for rules over measured numbers: whether a rule passes on a node, does not apply, or which value enters a comparison.

These rules are judged for every node, and nearly all of them pass. The function that pass_writer.py writes for such a rule decides only that, quickly. If it
finds a null, a fault, a long list or anything else unexpected, it raises one of CANNOT_TELL, and the rule is judged in full. So its results always equal
those of the full judge.

Of `driver.module == 'open' and node.uptime_s > 5000000 or node.dmi.product == 'X'` the second part reads no measured number: it is decided once for all nodes
with equal configuration, and the function is written for the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from jinja2 import nodes

from unhang.audit.judge.checks import Compiler
from unhang.audit.judge.expression import Expression, pruned
from unhang.audit.judge.groups import Compared, frozen
from unhang.audit.judge.own_facts import is_own
from unhang.audit.judge.pass_writer import Passes, Writer
from unhang.audit.judge.quick_compiler import ItemsCompiler, QuickCompiler
from unhang.audit.judge.quick_values import NO_ANSWER, Absent, Ask, NodeView, NotQuick, NoValue, Quick, WhyNull, outcome
from unhang.audit.judge.rules import Rule
from unhang.audit.judge.syntax import ExpressionError, Kind
from unhang.schemas.shapes import Shape, fact_shapes

CANNOT_TELL = (*NO_ANSWER, NoValue, Absent)
_STRAIGHT = (nodes.Compare, nodes.Operand, nodes.Add, nodes.Sub, nodes.Getattr, nodes.Name, nodes.Const)
_NOT_WRITTEN = (NotQuick, ExpressionError, AttributeError, KeyError)


@dataclass(frozen=True)
class PassRule:
    """A rule whose condition is A or B or …: the clauses that read no measured number are decided once for all nodes with equal configuration."""

    each: Quick | None
    named: ItemsCompiler | None  # returns the path of an item, to find out why a value in it is null
    steady: tuple[Quick, ...]
    passes: Passes
    measured: Passes | None = None  # whether all measured values were read, for a condition whose values do not decide which facts are read

    def decide(self, sections: Any, why: WhyNull) -> list[tuple[str, int]] | None:
        """[(verdict, items)] for the case that no clause over measured numbers holds; None if one of the other clauses holds or is undecided."""
        try:
            node = NodeView(sections, None, str, why)
            items = [None] if self.each is None else self.each(node)
            if not items:
                return [("skip", 1)]
            found = [self._verdict(node, item) for item in items]
        except CANNOT_TELL:
            return None
        return [(verdict, found.count(verdict)) for verdict in dict.fromkeys(found)]

    def _verdict(self, node: NodeView, item: Any) -> str:
        if self.each is not None and item is None:
            raise Ask
        seen = NodeView(node.sections, item, partial(self._path, node, item), node.why)
        reported = [outcome(claim, seen) for claim in self.steady]
        if True in reported:
            raise Ask
        return "skip" if None in reported else "pass"

    def _path(self, node: NodeView, item: Any) -> str:
        assert self.named is not None
        return f"{self.named.path}[{next(place for place, one in enumerate(self.named.base(node)) if one is item)}]"


@dataclass(frozen=True)
class SkipRule:
    """A rule for which a measured value decides whether it applies."""

    passes: Passes  # True if the rule does not apply

    def decide(self, sections: Any, why: WhyNull) -> list[tuple[str, int]] | None:
        """As PassRule.decide."""
        return [("skip", 1)]


@dataclass(frozen=True)
class ApplyRule:
    """A rule without for_each of which something measured decides whether it applies."""

    passes: Passes  # whether it applies, and its condition does not hold

    def decide(self, sections: Any, why: WhyNull) -> list[tuple[str, int]] | None:
        """As PassRule.decide."""
        return [("pass", 1)]


@dataclass(frozen=True)
class Vote:
    """A node's value in a comparison with its peers."""

    skipped: Passes | None  # True if the rule does not apply
    value: Callable[[Any], Any]

    def compared(self, sections: Any) -> Compared:
        """The same result as compare_node. Raises one of CANNOT_TELL."""
        if self.skipped is not None and self.skipped(sections):
            raise Ask
        value = self.value(sections)
        return Compared(frozen(value), value)


def passing(rule: Rule, tables: Mapping[str, Any], tables_shape: Shape) -> PassRule | None:
    """The function for a rule of scope node, without its `applies`; None if it has none."""
    if rule.scope != "node" or rule.when is None or (rule.for_each is not None and any(map(is_own, rule.for_each.reads))):
        return None
    item = {} if rule.for_each is None else {"item": rule.for_each.kind.items()}
    try:
        return _split(rule.for_each, rule.when, _names(tables_shape) | item, tables)
    except _NOT_WRITTEN:
        return None


def skipping(rule: Rule, tables: Mapping[str, Any], tables_shape: Shape) -> SkipRule | None:
    """The function that decides whether a rule of scope node does not apply; None if it has none."""
    if rule.scope != "node" or rule.applies is None or "item" in rule.applies.uses:
        return None
    try:
        return SkipRule(_skips(rule.applies, tables, tables_shape))
    except _NOT_WRITTEN:
        return None


def applying(rule: Rule, tables: Mapping[str, Any], tables_shape: Shape) -> ApplyRule | None:
    """The function that finds that a rule of scope node applies and passes; None if it has none."""
    if rule.scope != "node" or rule.applies is None or rule.when is None or rule.for_each is not None:
        return None
    try:
        broken_or_skipped = nodes.Or(nodes.Not(_condition(rule.applies)), _condition(rule.when))
        return ApplyRule(Writer(QuickCompiler(_names(tables_shape), tables)).passes(None, [broken_or_skipped]))
    except _NOT_WRITTEN:
        return None


def voting(rule: Rule, tables: Mapping[str, Any], tables_shape: Shape) -> Vote | None:
    """The function for a rule that compares nodes; None when it has none."""
    if rule.compare is None:
        return None
    try:
        skipped = None if rule.applies is None else _skips(rule.applies, tables, tables_shape)
        return Vote(skipped, Writer(QuickCompiler(_names(tables_shape), tables)).value_of(rule.compare))
    except _NOT_WRITTEN:
        return None


def _names(tables_shape: Shape) -> dict[str, Kind]:
    """The names that an expression may read here: only facts, not policy or host, because a function gets only the facts."""
    return {name: Kind(shape, (name,)) for name, shape in fact_shapes().items()} | {"tables": Kind(tables_shape)}


def _skips(applies: Expression, tables: Mapping[str, Any], tables_shape: Shape) -> Passes:
    return Writer(QuickCompiler(_names(tables_shape), tables)).passes(None, [_condition(applies)])


def _split(each: Expression | None, when: Expression, names: Mapping[str, Kind], tables: Mapping[str, Any]) -> PassRule:
    own, steady = list[nodes.Expr](), list[nodes.Expr]()
    for clause in _clauses(_condition(when)):
        compiler = Compiler(names)
        compiler.visit(clause)
        (own if any(map(is_own, pruned(compiler.reads))) else steady).append(clause)
    if not own:
        raise NotQuick("items that are chosen by measured numbers")
    kinds = QuickCompiler(names, tables)
    claims = tuple(kinds.claim(clause) for clause in steady)
    items = None if each is None else kinds.visit(each.tree())[1]
    named = ItemsCompiler(names, tables, each) if each is not None and claims else None
    measured = _measured(each, own[0], names, kinds) if each is not None and len(own) == 1 and not claims else None
    return PassRule(items, named, claims, Writer(kinds).passes(each, own), measured)


def _measured(each: Expression, clause: nodes.Expr, names: Mapping[str, Kind], kinds: QuickCompiler) -> Passes | None:
    """None for a condition with anything but sums, differences and comparisons."""
    if not all(isinstance(one, _STRAIGHT) for one in (clause, *clause.find_all(nodes.Node))):
        return None
    own = []
    for one in clause.find_all(nodes.Getattr):
        compiler = Compiler(names)
        compiler.visit(one)
        own += [one] if any(map(is_own, pruned(compiler.reads))) else []
    return Writer(kinds).measured(each, own)


def _condition(expression: Expression) -> nodes.Expr:
    """The syntax tree of a condition; not for templates."""
    tree = expression.tree()
    if not isinstance(tree, nodes.Expr):
        raise NotQuick("a template where a condition is expected")
    return tree


def _clauses(node: nodes.Expr) -> list[nodes.Expr]:
    return [*_clauses(node.left), *_clauses(node.right)] if isinstance(node, nodes.Or) else [node]
