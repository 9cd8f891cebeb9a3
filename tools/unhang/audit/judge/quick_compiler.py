"""Compiles conditions to functions over plain values, if a quick form exists.

    item.temperature_c >= item.temperature_slowdown_c - 3

becomes one function that calls two others: one returns `seen.item.temperature_c`, the other subtracts 3 from the result of a third. `seen` is the object of
the condition, a node or an item of one of its lists (quick_values.NodeView). If a value is null, the function raises NoValue, which the whole comparison
turns into Absent (the node has no such thing: skipped) or Ask (judge it in full). Filters are in quick_filters.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from jinja2 import nodes

from unhang.audit.judge.expression import Expression
from unhang.audit.judge.expression_tests import bound_test, keywords_of
from unhang.audit.judge.functions import TEST_NAMES
from unhang.audit.judge.quick_filters import LITERAL_TESTS, QuickFilters
from unhang.audit.judge.quick_values import COMPARE, MOST_ITEMS, Absent, Ask, NodeView, NotQuick, NoValue, Place, Quick, null_is_absence, number, outcome
from unhang.audit.judge.syntax import Kind, SyntaxCompiler
from unhang.audit.judge.values import bounded, shown
from unhang.schemas.shapes import ANY, FLAG, NUMBER, TEXT, Shape

NUMBERS = {"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": operator.truediv, "FloorDiv": operator.floordiv, "Mod": operator.mod}
_NOTES_NOTHING = SyntaxCompiler({})  # the read paths were already noted when the rule was compiled in full


class QuickCompiler(QuickFilters):
    """Compiles syntax trees to functions over plain values. steps: the maximum that the full judge would count, with lists of MOST_ITEMS."""

    def __init__(self, names: Mapping[str, Kind], tables: Mapping[str, Any]):
        self.names = names
        self.tables = tables
        self.steps = 0
        self.places: list[Place] = []  # places read by the comparison that is being compiled
        self.may_fail_otherwise = False  # whether anything but a null can make the comparison undecided

    def expression(self, expression: Expression) -> Quick:
        """Raises NotQuick."""
        return self.claim(expression.tree())

    def visit(self, node: nodes.Node) -> tuple[Kind, Quick]:
        """(kind, function). Raises NotQuick."""
        self.steps += 2
        if isinstance(node, (nodes.Filter, nodes.BinExpr)) and getattr(node, "name", "") != "length" and type(node).__name__ not in NUMBERS:
            self.may_fail_otherwise = True
        if isinstance(node, (nodes.Compare, nodes.Test)) and any(True for _ in node.find_all((nodes.And, nodes.Or, nodes.Not))):
            raise NotQuick("logic inside of a comparison")
        method = getattr(self, f"visit_{type(node).__name__}", None)
        if method is None:
            raise NotQuick(type(node).__name__)
        return method(node)

    # ---- values

    def visit_Const(self, node: nodes.Const) -> tuple[Kind, Quick]:
        value = node.value
        shape = FLAG if isinstance(value, bool) else NUMBER if isinstance(value, (int, float)) else TEXT
        return Kind(shape, literal=value), lambda seen: value

    def visit_List(self, node: nodes.List) -> tuple[Kind, Quick]:
        values = [self.literal(one) for one in node.items]
        self.steps += len(values)
        return Kind(Shape("list", item=ANY), literal=values), lambda seen: values

    visit_Tuple = visit_List

    def literal(self, node: nodes.Node) -> Any:
        """The value of a constant. Raises NotQuick."""
        if not isinstance(node, nodes.Const):
            raise NotQuick("a computed value where a constant is expected")
        return node.value

    def visit_Name(self, node: nodes.Name) -> tuple[Kind, Quick]:
        return self.visit_Getattr(node)

    def visit_Getattr(self, node: nodes.Node) -> tuple[Kind, Quick]:
        kind, run = self.place(node)
        short = kind.shape.kind == "list"

        def value(seen: NodeView) -> Any:
            try:
                found = run(seen)
            except (AttributeError, KeyError):
                raise NoValue from None
            if found is None:
                raise NoValue
            if short and len(found) > MOST_ITEMS:
                raise Ask
            return found

        return kind, value

    def visit_Getitem(self, node: nodes.Getitem) -> tuple[Kind, Quick]:
        return self.visit_Getattr(node)

    def place(self, node: nodes.Node) -> tuple[Kind, Quick]:
        """The value at a path, None if there is none. A null object on the way raises AttributeError."""
        names: list[str] = []
        while isinstance(node, nodes.Getattr):
            names.insert(0, node.attr)
            node = node.node
        self.steps += len(names)
        if isinstance(node, nodes.Name) and node.name == "tables":
            return self.of_table(names)
        if isinstance(node, nodes.Getitem):
            return self.of_row(node, names)
        if not isinstance(node, nodes.Name) or node.name not in self.names:
            raise NotQuick("a place that is no path")
        kind = self.below(self.names[node.name], names)
        if node.name == "item":
            if not names:
                raise NotQuick("an item as a whole")
            self.places.append((True, tuple(names)))
            get = attrgetter(".".join(names))
            return kind, lambda seen: get(seen.item)
        self.places.append((False, (node.name, *names)))
        get = attrgetter(".".join((node.name, *names)))
        return kind, lambda seen: get(seen.sections)

    def below(self, kind: Kind, names: list[str]) -> Kind:
        """The kind at the end of a path that leads through objects alone."""
        for name in names:
            if kind.shape.kind != "object" or name not in kind.shape.fields:
                raise NotQuick("a path through something else than objects")
            kind = Kind(kind.shape.fields[name], None if kind.path is None else (*kind.path, name))
        return kind

    def of_table(self, names: list[str]) -> tuple[Kind, Quick]:
        """tables.NAME.KEY.FIELD, which is a constant."""
        shape = self.names["tables"].shape
        value: Any = self.tables
        for name in names:
            shape = (shape.item or ANY) if shape.kind == "map" else shape.fields.get(name, ANY)
            value = value.get(name)
            if not isinstance(value, Mapping) and name is not names[-1]:
                raise NotQuick("a table that has no such row")
        if value is None:
            raise NotQuick("a table that has no such field")
        return Kind(shape), lambda seen: value

    def of_row(self, node: nodes.Getitem, names: list[str]) -> tuple[Kind, Quick]:
        """tables.NAME[KEY].FIELD."""
        table = node.node
        if not (isinstance(table, nodes.Getattr) and isinstance(table.node, nodes.Name) and table.node.name == "tables" and len(names) == 1):
            raise NotQuick("an entry of something else than a table")
        rows, (name,) = self.tables[table.attr], names
        shape = self.names["tables"].shape.fields[table.attr].item or ANY
        _, key = self.visit(node.arg)
        return Kind(shape.fields.get(name, ANY)), lambda seen: rows[str(key(seen))].get(name)

    # ---- logic and numbers

    def visit_And(self, node: nodes.And) -> tuple[Kind, Quick]:
        return self.joined(node, False)

    def visit_Or(self, node: nodes.Or) -> tuple[Kind, Quick]:
        return self.joined(node, True)

    def joined(self, node: nodes.BinExpr, deciding: bool) -> tuple[Kind, Quick]:
        """and (deciding False), or (deciding True): an undecided side does not matter if the other side decides alone."""
        left, right = self.claim(node.left), self.claim(node.right)

        def run(seen: NodeView) -> bool:
            first = outcome(left, seen)
            if first is deciding:
                return deciding
            second = outcome(right, seen)
            if second is deciding:
                return deciding
            if first is None or second is None:
                raise Absent
            return not deciding

        return Kind(FLAG), run

    def claim(self, node: nodes.Node) -> Quick:
        """An expression that is true or false; a null in a comparison makes it undecided."""
        if isinstance(node, (nodes.And, nodes.Or, nodes.Not)):
            return self.visit(node)[1]
        self.places, self.may_fail_otherwise = [], False
        run = self.visit(node)[1]
        places, opaque = self.places, self.may_fail_otherwise

        def decided(seen: NodeView) -> Any:
            try:
                return run(seen)
            except NoValue:
                if opaque:
                    raise Ask from None
                return null_is_absence(places, seen)

        return decided

    def visit_Not(self, node: nodes.Not) -> tuple[Kind, Quick]:
        run = self.claim(node.node)
        return Kind(FLAG), lambda seen: not run(seen)

    def visit_Compare(self, node: nodes.Compare) -> tuple[Kind, Quick]:
        if len(node.ops) != 1:
            raise NotQuick("a chain of comparisons")
        (_, left), (holder, right), symbol = self.visit(node.expr), self.visit(node.ops[0].expr), node.ops[0].op
        if symbol in COMPARE:
            compare = COMPARE[symbol]
            return Kind(FLAG), lambda seen: compare(left(seen), right(seen))
        self.need_list(holder)
        wanted = symbol == "in"
        return Kind(FLAG), lambda seen: (left(seen) in right(seen)) is wanted

    def arithmetic(self, node: nodes.BinExpr) -> tuple[Kind, Quick]:
        """left + right, of numbers alone."""
        left, right, calculate = self.visit(node.left)[1], self.visit(node.right)[1], NUMBERS[type(node).__name__]
        return Kind(NUMBER), lambda seen: calculate(number(left(seen)), number(right(seen)))

    visit_Add = visit_Sub = visit_Mul = visit_Div = visit_FloorDiv = visit_Mod = arithmetic

    def visit_Concat(self, node: nodes.Concat) -> tuple[Kind, Quick]:
        """left ~ right, of single values."""
        self.may_fail_otherwise = True
        parts = [self.visit(one) for one in node.nodes]
        if not all(kind.shape.is_scalar for kind, _ in parts):
            raise NotQuick("single values are expected")
        return Kind(TEXT), lambda seen: bounded("".join([shown(run(seen)) for _, run in parts]))

    def visit_Test(self, node: nodes.Test) -> tuple[Kind, Quick]:
        name = TEST_NAMES.get(node.name, node.name)
        if name in ("known", "unknown"):
            return self.is_known(node.node, name == "known")
        kind, run = self.visit(node.node)
        if name == "startswith" and len(node.args or []) == 1 and not isinstance(node.args[0], nodes.Const):
            beginning = self.visit(node.args[0])[1]
            return Kind(FLAG), lambda seen: str(run(seen)).startswith(str(beginning(seen)))
        if name not in LITERAL_TESTS:
            raise NotQuick(f"test {name}")
        check = self.check(name, kind, node.args or [], keywords_of(node))
        return Kind(FLAG), lambda seen: check(None, run(seen))

    def is_known(self, node: nodes.Node, wanted: bool) -> tuple[Kind, Quick]:
        """PATH is known, and tables.NAME[KEY].FIELD is known. An object on the way that is null is left to judging in full."""
        if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Getitem):
            field = self.of_row(node.node, [node.attr])[1]
            return Kind(FLAG), lambda seen: (field(seen) is not None) is wanted
        places = len(self.places)
        _, run = self.place(node)
        del self.places[places:]  # a null here is an answer, not the reason for none
        return Kind(FLAG), lambda seen: (run(seen) is not None) is wanted

    def check(self, name: str, kind: Kind, arguments: list[nodes.Expr], keywords: dict[str, Any]) -> Any:
        """The test of the full judge, with constants: (nothing, value) -> bool."""
        constants = [self.visit_Const(nodes.Const(self.literal(one))) for one in arguments]
        check = bound_test(_NOTES_NOTHING, name, kind, constants, keywords)
        return _once_for_a_value(check) if name == "version" else check


def _once_for_a_value(check: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """A test that caches its results, because a fleet has few different versions. A call that raises is not cached."""
    known: dict[Any, bool] = {}

    def answer(nothing: Any, value: Any) -> bool:
        found = known.get(value)
        if found is None:
            if len(known) >= MOST_ITEMS:
                known.clear()
            found = known[value] = check(nothing, value)
        return found

    return answer


class ItemsCompiler(QuickCompiler):
    """Compiles for_each: a list in the facts, or the items that selectattr and rejectattr choose from it."""

    def __init__(self, names: Mapping[str, Kind], tables: Mapping[str, Any], expression: Expression):
        super().__init__(names, tables)
        tree = expression.tree()
        self.run = self.visit(tree)[1]
        while isinstance(tree, nodes.Filter) and tree.name in ("selectattr", "rejectattr", "list") and tree.node is not None:
            tree = tree.node
        if not isinstance(tree, (nodes.Getattr, nodes.Name)):
            raise NotQuick("a list that is no path")
        kind, self.base = self.visit(tree)
        if kind.path is None or kind.shape.kind != "list" or kind.shape.item is None or kind.shape.item.kind != "object":
            raise NotQuick("items that are no objects of the facts")
        if "path" in kind.shape.item.fields:
            raise NotQuick("items whose nulls are explained by their names")
        self.path = ".".join(kind.path)
