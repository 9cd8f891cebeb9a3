"""Writes Python for conditions over measured numbers, and compiles it.

For each of `gpus.devices | selectattr('error', 'unknown')`, of which `item.temperature_c >= item.temperature_slowdown_c - 3` must not hold, it writes

    def passes(S):
        v1 = short(S.gpus.devices)
        v2 = [one for one in v1 if one.error is None]
        for item in short(v2):
            if (item.temperature_c >= (item.temperature_slowdown_c - c3)):
                return False
        return True

where S is a node's sections, c3 is bound to a constant of the rule (here 3), and short is one of HELPERS, which raise for unexpected values
(pass_code.CANNOT_TELL). Sums and comparisons by size raise for a null by themselves; == and `in` do not, so `known` is written around their fields. Expressions
that do not read the item come before the loop, once (Writer.once). The code contains only names of fields (identifiers of the schema) and names that are made
here, never a text of a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from keyword import iskeyword
from typing import Any

from jinja2 import nodes

from unhang.audit.judge.expression import Expression
from unhang.audit.judge.expression_tests import keywords_of
from unhang.audit.judge.functions import TEST_NAMES
from unhang.audit.judge.quick_compiler import QuickCompiler
from unhang.audit.judge.quick_values import COMPARE, MOST_ITEMS, Ask, NotQuick, flattened, known, number, whole
from unhang.audit.judge.syntax import Kind
from unhang.audit.judge.values import STEPS, bounded, shown
from unhang.schemas.shapes import ANY

Passes = Callable[[Any], bool]  # (sections) -> whether no condition holds on any item. Raises one of pass_code.CANNOT_TELL where that cannot be decided
SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">="}
SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "FloorDiv": "//", "Mod": "%"}
MOST_USUAL = 1 << 53
_LOGIC = (nodes.And, nodes.Or, nodes.Not)


def short(values: Any) -> Any:
    """A list that may be iterated over. Raises Ask if the full judge must count its steps, or if an item is null."""
    if len(values) > MOST_ITEMS or None in values:
        raise Ask
    return values


def usual(value: Any) -> bool:
    """Whether a value is a number that can be added to any other number."""
    return type(value) in (int, float) and -MOST_USUAL < value < MOST_USUAL


def common(values: list[Any], others: list[Any]) -> list[Any]:
    """values | intersect(others)."""
    wanted = set(whole(others))
    return [one for one in dict.fromkeys(whole(values)) if one in wanted]


HELPERS: Mapping[str, Any] = {
    "known": known, "number": number, "usual": usual, "short": short,
    "whole": whole, "common": common, "shown": shown, "bounded": bounded, "flattened": flattened,
}  # fmt: skip


class Writer:
    """Writes one function. bound: its constants by name."""

    def __init__(self, kinds: QuickCompiler):
        self.kinds = kinds
        self.bound: dict[str, Any] = dict(HELPERS)
        self.once: dict[str, str] = {}  # expression -> name of its value, which is computed once for a node, before the items
        self.has_items = True
        self.of_item: dict[str, str] = {}  # the same, computed once for an item
        self.tables: dict[str, str] = {}  # name of a table -> name of its rows
        self.count = 0

    def passes(self, each: Expression | None, clauses: list[nodes.Expr]) -> Passes:
        """Whether none of the clauses holds on any item. Raises NotQuick, ExpressionError."""
        self.has_items = each is not None
        for clause in clauses:
            self.kinds.claim(clause)  # an expression that the quick forms refuse is refused here too
        items = "()" if each is None else self.value(each.tree())
        claim = " or ".join([self.claim(clause) for clause in clauses])
        of_item = [f"{name} = {text}" for text, name in self.of_item.items()]
        if each is None:
            return self._compiled([*of_item, f"return not ({claim})"])
        return self._compiled([f"for item in short({items}):", *(f"    {line}" for line in [*of_item, f"if {claim}:", "    return False"]), "return True"])

    def measured(self, each: Expression, fields: list[nodes.Getattr]) -> Passes:
        """Whether each of these fields is a number of a safe size, on every item. Raises NotQuick, ExpressionError."""
        items = self.value(each.tree())
        claim = " and ".join(f"usual({self.written(field)})" for field in fields)
        return self._compiled([f"for item in short({items}):", f"    if not ({claim}):", "        return False", "return True"])

    def value_of(self, expression: Expression) -> Callable[[Any], Any]:
        """(sections) -> the value of an expression over a node; the function raises if the value is undecided. Raises NotQuick, ExpressionError."""
        tree = expression.tree()
        self.kinds.visit(tree)
        return self._compiled([f"return {self.value(tree)}"])

    def _compiled(self, lines: list[str]) -> Callable[[Any], Any]:
        """Compiles the function: first the expressions that are computed once, then these lines."""
        if MOST_ITEMS * self.kinds.steps > STEPS // 2:
            raise NotQuick("judging it in full could be stopped")
        written = ["def passes(S):", *(f"    {name} = {text}" for text, name in self.once.items()), *(f"    {line}" for line in lines)]
        exec(compile("\n".join(written), "<rule>", "exec"), self.bound)  # noqa: S102 - written above, of identifiers alone
        passes: Callable[[Any], Any] = self.bound["passes"]
        return passes

    def bind(self, value: Any) -> str:
        """A name for a constant."""
        self.count += 1
        name = f"c{self.count}"
        self.bound[name] = value
        return name

    def kept(self, place: dict[str, str], text: str) -> str:
        """A name for the value of an expression; without items the expression itself, so that a null does not matter where another side of `and` decides."""
        if place is self.once and not self.has_items:
            return text
        self.count += 1
        return place.setdefault(text, f"v{self.count}")

    # ---- conditions

    def claim(self, node: nodes.Node) -> str:
        """An expression that is true or false; it raises if it is undecided."""
        if isinstance(node, nodes.Not):
            return f"(not {self.claim(node.node)})"
        if isinstance(node, (nodes.And, nodes.Or)):
            word = "and" if isinstance(node, nodes.And) else "or"
            return f"({self.claim(node.left)} {word} {self.claim(node.right)})"
        return self.value(node)

    def value(self, node: nodes.Node) -> str:
        """Any other expression; never null. One that does not read the item is computed once for a node."""
        if isinstance(node, _LOGIC):
            raise NotQuick("logic inside of a value")
        if isinstance(node, (nodes.Filter, nodes.Test, nodes.Compare, nodes.BinExpr)) and not _reads_item(node):
            return self.kept(self.once, self.written(node))
        return self.written(node)

    def written(self, node: nodes.Node) -> str:
        """The same as `value`, inline."""
        method = getattr(self, f"write_{type(node).__name__}", None)
        if method is None:
            raise NotQuick(type(node).__name__)
        return method(node)

    # ---- values

    def write_Const(self, node: nodes.Const) -> str:
        return self.bind(node.value)

    def write_List(self, node: nodes.List) -> str:
        return self.bind([self.kinds.literal(one) for one in node.items])

    write_Tuple = write_List

    def place(self, node: nodes.Node) -> str:
        """The value at a path, except null and lists that are too long."""
        kind, run = self.kinds.place(node)
        names = _names(node)
        root = names.pop(0) if names else ""
        if isinstance(_root(node), nodes.Getitem):
            return self.row(node)
        if root == "tables":
            return self.bind(known(run(None)))
        text = self.path(root, names)
        text = f"short({text})" if kind.shape.kind == "list" else f"known({text})"
        return text if root == "item" else self.kept(self.once, text)

    def path(self, root: str, names: list[str]) -> str:
        """Where a fact of the item or of the node is. Raises NotQuick."""
        return _dotted(".".join(["item" if root == "item" else f"S.{root}", *names]))

    write_Name = write_Getattr = write_Getitem = place

    def row(self, node: nodes.Node) -> str:
        """tables.NAME[KEY].FIELD."""
        entry = _root(node)
        field = _names(node)[-1]
        _dotted(field)
        rows = self.tables.setdefault(entry.node.attr, "") or self.bind(self.kinds.tables[entry.node.attr])
        self.tables[entry.node.attr] = rows
        text = f"known({rows}[str({self.value(entry.arg)})].get('{field}'))"
        return self.kept(self.of_item, text)

    def write_Compare(self, node: nodes.Compare) -> str:
        if len(node.ops) != 1:
            raise NotQuick("a chain of comparisons")
        sign = node.ops[0].op
        sign = {"in": "in", "notin": "not in"}.get(sign) or SYMBOLS.get(sign, sign)
        if sign not in (*SYMBOLS.values(), "in", "not in"):
            raise NotQuick(sign)
        side = self.value if sign in ("==", "!=", "in", "not in") else self.ordered
        return f"({side(node.expr)} {sign} {side(node.ops[0].expr)})"

    def ordered(self, node: nodes.Node) -> str:
        """A side of a comparison by size, or of a sum: there a null raises TypeError by itself, and need not be looked for."""
        if not isinstance(node, nodes.Getattr) or not isinstance(_root(node), nodes.Name):
            return self.value(node)
        names = _names(node)
        if names[0] == "tables" or not self.kinds.place(node)[0].shape.is_scalar:
            return self.value(node)
        text = self.path(names[0], names[1:])
        return text if names[0] == "item" else self.kept(self.once, text)

    def arithmetic(self, node: nodes.BinExpr) -> str:
        """left + right, for numbers only."""
        return f"({self.summand(node.left)} {SIGNS[type(node).__name__]} {self.summand(node.right)})"

    def summand(self, node: nodes.Node) -> str:
        """A number. What the schema calls one, a constant and a sum are numbers already."""
        if isinstance(node, nodes.BinExpr) and type(node).__name__ in SIGNS:
            return self.value(node)
        if isinstance(node, nodes.Const) and type(node.value) in (int, float):
            return self.value(node)
        if isinstance(node, nodes.Getattr) and isinstance(_root(node), nodes.Name) and self.kinds.place(node)[0].shape.kind == "number":
            return self.value(node) if _names(node)[0] == "tables" else self.ordered(node)
        return f"number({self.value(node)})"

    write_Add = write_Sub = write_Mul = write_Div = write_FloorDiv = write_Mod = arithmetic

    def write_Concat(self, node: nodes.Concat) -> str:
        """left ~ right, for single values."""
        return f"bounded({' + '.join(f'shown({self.value(one)})' for one in node.nodes)})"

    def write_Test(self, node: nodes.Test) -> str:
        name = TEST_NAMES.get(node.name, node.name)
        if name in ("known", "unknown"):
            return self.known_test(node.node, name == "known")
        check = self.kinds.check(name, self.kinds.visit(node.node)[0], node.args or [], keywords_of(node))
        return f"{self.bind(check)}(None, {self.value(node.node)})"

    def known_test(self, node: nodes.Node, wanted: bool) -> str:
        """PATH is known. An object on the way that is null raises AttributeError."""
        names = _names(node)
        if not isinstance(_root(node), nodes.Name) or names[0] == "tables":
            raise NotQuick("a question for a row of a table")
        return f"({self.path(names[0], names[1:])} {'is not' if wanted else 'is'} None)"

    # ---- filters

    def write_Filter(self, node: nodes.Filter) -> str:
        assert node.node is not None  # the quick forms have checked it
        method = getattr(self, f"filter_{node.name}", None)
        if method is not None:
            return method(self.value(node.node), node)
        return f"{self.bind(self.kinds.changing(node.name, node.args or []))}({self.value(node.node)})"

    def filter_length(self, values: str, node: nodes.Filter) -> str:
        """list | length."""
        return f"len({values})"

    def filter_list(self, values: str, node: nodes.Filter) -> str:
        """list | list."""
        return f"whole({values})"

    def filter_flatten(self, values: str, node: nodes.Filter) -> str:
        """list of lists | flatten."""
        return f"flattened({values})"

    def filter_unique(self, values: str, node: nodes.Filter) -> str:
        """list | unique."""
        return f"list(dict.fromkeys(whole({values})))"

    def filter_sum(self, values: str, node: nodes.Filter) -> str:
        """list | sum, and list | max."""
        return f"{node.name}([number(one) for one in {values}])"

    filter_max = filter_sum

    def filter_select(self, values: str, node: nodes.Filter) -> str:
        """list | select(COMPARISON, value), which the quick form has checked."""
        name = self.kinds.literal(node.args[0])
        return f"[one for one in whole({values}) if one {_sign(TEST_NAMES.get(name, name))} {self.bind(self.kinds.literal(node.args[1]))}]"

    def filter_sort(self, values: str, node: nodes.Filter) -> str:
        """list | sort."""
        return f"sorted(whole({values}))"

    def filter_join(self, values: str, node: nodes.Filter) -> str:
        """list | join(', ')."""
        separator = str(self.kinds.literal(node.args[0])) if node.args else ", "
        return f"{self.bind(separator)}.join(map(shown, whole({values})))"

    def filter_intersect(self, values: str, node: nodes.Filter) -> str:
        """list | intersect(list)."""
        return f"common({values}, {self.value(node.args[0])})"

    def filter_map(self, values: str, node: nodes.Filter) -> str:
        """list | map(attribute='a.b') and list | map(FILTER, …)."""
        keywords = keywords_of(node)
        if set(keywords) == {"attribute"} and not node.args:
            return f"[known(one.{_dotted(str(keywords['attribute']))}) for one in {values}]"
        if self.kinds.literal(node.args[0]) == "length":
            return f"[len(one) for one in whole({values})]"
        change = self.bind(self.kinds.changing(self.kinds.literal(node.args[0]), node.args[1:]))
        return f"[{change}(one) for one in whole({values})]"

    def filter_selectattr(self, values: str, node: nodes.Filter) -> str:
        """list | selectattr('a.b', TEST, value), and rejectattr."""
        wanted, (named, *rest) = node.name == "selectattr", node.args
        field = "one." + _dotted(self.kinds.literal(named))
        word = "" if wanted else "not "
        if not rest:
            return f"[one for one in {values} if {word}known({field})]"
        name = TEST_NAMES.get(self.kinds.literal(rest[0]), self.kinds.literal(rest[0]))
        if name in ("known", "unknown"):
            null = "is" if (name == "unknown") is wanted else "is not"
            return f"[one for one in {values} if {field} {null} None]"
        if name in COMPARE and len(rest) == 2:
            other = self.value(rest[1])
            return f"[one for other in ({other},) for one in {values} if {word}(known({field}) {_sign(name)} other)]"
        if name == "in" and len(rest) == 2 and isinstance(rest[1], nodes.List):
            return f"[one for one in {values} if {word}(known({field}) in {self.value(rest[1])})]"
        assert node.node is not None
        inside = self.kinds.below(Kind(self.kinds.visit(node.node)[0].shape.item or ANY), self.kinds.literal(named).split("."))
        check = self.bind(self.kinds.check(name, inside, rest[1:], keywords_of(node)))
        return f"[one for one in {values} if {word}{check}(None, known({field}))]"

    filter_rejectattr = filter_selectattr


def _sign(name: str) -> str:
    """== for eq."""
    return SYMBOLS.get(name, name)


def _reads_item(node: nodes.Node) -> bool:
    return any(name.name == "item" for name in node.find_all(nodes.Name)) or (isinstance(node, nodes.Name) and node.name == "item")


def _root(node: nodes.Node) -> Any:
    while isinstance(node, nodes.Getattr):
        node = node.node
    return node


def _names(node: nodes.Node) -> list[str]:
    """The parts of item.pcie.width; of a table's entry only the parts after it."""
    names: list[str] = []
    while isinstance(node, nodes.Getattr):
        names.insert(0, node.attr)
        node = node.node
    return [node.name, *names] if isinstance(node, nodes.Name) else names


def _dotted(path: str) -> str:
    """The dotted path. Raises NotQuick for anything but a path of identifiers."""
    if not all(name.isidentifier() and not iskeyword(name) for name in path.split(".")):
        raise NotQuick("a field that is no identifier")
    return path
