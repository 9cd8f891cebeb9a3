"""Writes Python for conditions over measured numbers, and compiles it.

For each of `gpus.devices | selectattr('error', 'unknown')`, of which `item.temperature_c >= item.temperature_slowdown_c - 3` must not hold, it writes

    def passes(S):
        v1 = short(S.gpus.devices)
        v2 = [one for one in v1 if one.error is None]
        for item in short(v2):
            if (known(item.temperature_c) >= (number(known(item.temperature_slowdown_c)) - number(c3))):
                return False
        return True

where S is a node's sections, c3 a constant of the rule that is bound to this name (here 3), and known, number and short are HELPERS that raise for what is
not as expected (pass_code.CANNOT_TELL). What does not read the item stands before the loop, once (Writer.once).

What is written holds names of fields (identifiers of the schema) and names that are made here. No text of a rule gets into it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from keyword import iskeyword
from typing import Any

from jinja2 import nodes

from unhang.judge.expression import Expression
from unhang.judge.expression_tests import keywords_of
from unhang.judge.functions import TEST_NAMES
from unhang.judge.quick_compiler import QuickCompiler
from unhang.judge.quick_values import COMPARE, MOST_ITEMS, Ask, NotQuick, flattened, known, number, whole
from unhang.judge.syntax import Kind
from unhang.judge.values import STEPS, bounded, shown
from unhang.schemas.shapes import ANY

Passes = Callable[[Any], bool]  # (sections) -> whether no condition holds on any item. Raises one of pass_code.CANNOT_TELL where that cannot be decided
SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">="}
SIGNS = {"Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "FloorDiv": "//", "Mod": "%"}
MOST_USUAL = 1 << 53
_LOGIC = (nodes.And, nodes.Or, nodes.Not)


def short(values: Any) -> Any:
    """A list that may be gone through. Raises Ask for one that judging in full has to count, or of which an item is null."""
    if len(values) > MOST_ITEMS or None in values:
        raise Ask
    return values


def usual(value: Any) -> bool:
    """Whether it is a number that a sum with any other takes."""
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
        self.once: dict[str, str] = {}  # expression -> its name, worked out once for a node
        self.of_item: dict[str, str] = {}  # the same, once for an item
        self.tables: dict[str, str] = {}  # name of a table -> name of its rows
        self.count = 0

    def passes(self, each: Expression | None, clauses: list[nodes.Expr]) -> Passes:
        """Whether none of the clauses holds on any item. Raises NotQuick, ExpressionError."""
        for clause in clauses:
            self.kinds.claim(clause)  # what the quick forms do not take is not taken here either
        items = "()" if each is None else self.value(each.tree())
        claim = " or ".join([self.claim(clause) for clause in clauses])
        of_item = [f"{name} = {text}" for text, name in self.of_item.items()]
        if each is None:
            return self._compiled([*of_item, f"return not ({claim})"])
        return self._compiled([f"for item in short({items}):", *(f"    {line}" for line in [*of_item, f"if {claim}:", "    return False"]), "return True"])

    def measured(self, each: Expression, fields: list[nodes.Getattr]) -> Passes:
        """Whether each of these fields is a number that no sum runs away with, on every item. Raises NotQuick, ExpressionError."""
        items = self.value(each.tree())
        claim = " and ".join(f"usual({self.written(field)})" for field in fields)
        return self._compiled([f"for item in short({items}):", f"    if not ({claim}):", "        return False", "return True"])

    def value_of(self, expression: Expression) -> Callable[[Any], Any]:
        """(sections) -> the value of an expression over a node; raises where it cannot be decided. Raises NotQuick, ExpressionError."""
        tree = expression.tree()
        self.kinds.visit(tree)
        return self._compiled([f"return {self.value(tree)}"])

    def _compiled(self, lines: list[str]) -> Callable[[Any], Any]:
        """The function, of these lines behind what is worked out once."""
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
        """A name for what an expression comes to."""
        self.count += 1
        return place.setdefault(text, f"v{self.count}")

    # ---- conditions

    def claim(self, node: nodes.Node) -> str:
        """Something that is true or false; errors mean that it cannot be decided."""
        if isinstance(node, nodes.Not):
            return f"(not {self.claim(node.node)})"
        if isinstance(node, (nodes.And, nodes.Or)):
            word = "and" if isinstance(node, nodes.And) else "or"
            return f"({self.claim(node.left)} {word} {self.claim(node.right)})"
        return self.value(node)

    def value(self, node: nodes.Node) -> str:
        """Anything but logic; never null. What does not read the item is worked out once for a node."""
        if isinstance(node, _LOGIC):
            raise NotQuick("logic inside of a value")
        if isinstance(node, (nodes.Filter, nodes.Test, nodes.Compare, nodes.BinExpr)) and not _reads_item(node):
            return self.kept(self.once, self.written(node))
        return self.written(node)

    def written(self, node: nodes.Node) -> str:
        """The same, where it stands."""
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
        """What stands at a path, null excluded, and lists that are too long."""
        kind, run = self.kinds.place(node)
        names = _names(node)
        root = names.pop(0) if names else ""
        if isinstance(_root(node), nodes.Getitem):
            return self.row(node)
        if root == "tables":
            return self.bind(known(run(None)))
        text = _dotted(".".join(["item" if root == "item" else f"S.{root}", *names]))
        text = f"short({text})" if kind.shape.kind == "list" else f"known({text})"
        return text if root == "item" else self.kept(self.once, text)

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
        return f"({self.value(node.expr)} {sign} {self.value(node.ops[0].expr)})"

    def arithmetic(self, node: nodes.BinExpr) -> str:
        """left + right, of numbers alone."""
        return f"(number({self.value(node.left)}) {SIGNS[type(node).__name__]} number({self.value(node.right)}))"

    write_Add = write_Sub = write_Mul = write_Div = write_FloorDiv = write_Mod = arithmetic

    def write_Concat(self, node: nodes.Concat) -> str:
        """left ~ right, of single values."""
        return f"bounded({' + '.join(f'shown({self.value(one)})' for one in node.nodes)})"

    def write_Test(self, node: nodes.Test) -> str:
        name = TEST_NAMES.get(node.name, node.name)
        if name in ("known", "unknown"):
            raise NotQuick("a question for the reason of a null")
        check = self.kinds.check(name, self.kinds.visit(node.node)[0], node.args or [], keywords_of(node))
        return f"{self.bind(check)}(None, {self.value(node.node)})"

    # ---- filters

    def write_Filter(self, node: nodes.Filter) -> str:
        assert node.node is not None  # as the quick forms have found
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
        """list | select(COMPARISON, value), as the quick form has found."""
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
    """item.pcie.width as its parts; of an entry in a table only what stands behind it."""
    names: list[str] = []
    while isinstance(node, nodes.Getattr):
        names.insert(0, node.attr)
        node = node.node
    return [node.name, *names] if isinstance(node, nodes.Name) else names


def _dotted(path: str) -> str:
    """Raises NotQuick for what is no path of identifiers."""
    if not all(name.isidentifier() and not iskeyword(name) for name in path.split(".")):
        raise NotQuick("a field that is no identifier")
    return path
