"""A rule's condition and texts as English sentences, for people who do not read expressions. Syntax trees in, text out; nothing is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jinja2 import nodes

from unhang.audit.rules.expression import parsed, parsed_template

LONGEST_CONDITION = 420  # a longer sentence is no easier to read than the expression
LONGEST_PLACE = 44  # a longer value in a text is shortened with …
_COMPARED = {
    "eq": "is", "ne": "is not", "lt": "is less than", "lteq": "is at most", "gt": "is more than", "gteq": "is at least",
    "in": "is among", "notin": "is not among",
}  # fmt: skip
_SYMBOLS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "lteq", ">": "gt", ">=": "gteq", "equalto": "eq", "ne": "ne", "in": "in"}
_VERSIONS = {"==": "is {}", "!=": "is not {}", "<": "is older than {}", "<=": "is {} or older", ">": "is newer than {}", ">=": "is {} or newer"}
_TESTS = {
    "known": "is known", "unknown": "was not read", "whole": "is a whole number", "startswith": "begins with {}", "endswith": "ends with {}",
    "contains": "has {} in it", "like": "is like {}",
}  # fmt: skip
_NOT = {"is": "is not", "begins": "does not begin", "ends": "does not end", "has": "does not have"}
# Filters that only change the form of a value.
_SILENT = frozenset((
    "list", "string", "int", "float", "trim", "flatten", "known", "sort", "join", "values", "items", "keys", "unique", "upper", "lower", "expand_names",
    "round", "truncate", "replace",
))  # fmt: skip
_OF = {
    "length": "the number of", "first": "the first of", "last": "the last of", "max": "the largest of", "min": "the smallest of", "sum": "the sum of",
    "bursts": "bursts of", "split": "the parts of",
}  # fmt: skip
_PAIRS = {"intersect": "what {} and {} share", "union": "{} and {}", "difference": "{} without {}", "rows_of": "what {1} say of {0}"}
_ORDINALS = ("first", "second", "third", "fourth")


class _Strange(Exception):
    """The expression has a form for which there is no sentence."""


def condition(row: Mapping[str, Any], tables: Mapping[str, Any]) -> str | None:
    """The condition of a finding as one sentence; None if it would be too long to read once. row: the rule's; tables: the catalogue's."""
    speech = _Speech(tables)
    trees = {
        name: parsed(str(row[name]).lower() if isinstance(row[name], bool) else row[name]) for name in ("applies", "for_each", "compare", "when") if name in row
    }
    try:
        if "for_each" in trees:
            where = f", where {speech.claim(trees['applies'])}" if "applies" in trees else ""
            text = f"for each of {speech.value(trees['for_each'])}{where}: {speech.claim(trees['when'])}"
        else:
            claims = [speech.side(trees[name], nodes.And) for name in ("applies", "when") if name in trees]
            text = ", and ".join([*claims, *([f"nodes differ in {speech.value(trees['compare'])}"] if "compare" in trees else [])])
    except _Strange:
        return None
    return text if len(text) <= LONGEST_CONDITION else None


def template(text: str, tables: Mapping[str, Any]) -> str:
    """A text in which each value from a node is <its description>, or … if that is long."""
    speech = _Speech(tables)
    pieces = []
    for output in parsed_template(text).body:
        for node in getattr(output, "nodes", ()):
            pieces.append(node.data if isinstance(node, nodes.TemplateData) else speech.place(node))
    return " ".join("".join(pieces).split())


class _Speech:
    """Makes sentences from syntax trees; dispatches by the kind of the tree's node, as syntax.SyntaxCompiler does. tables: for their titles."""

    def __init__(self, tables: Mapping[str, Any]):
        self.tables = tables

    def place(self, node: nodes.Node) -> str:
        """The placeholder for a value from a node; empty for a value that only some nodes have."""
        if isinstance(node, nodes.CondExpr) and any(one is None or getattr(one, "value", None) == "" for one in (node.expr1, node.expr2)):
            return ""
        try:
            text = self.value(node).removeprefix("its ").removeprefix("the ").replace(", its ", ", ")
        except _Strange:
            return "…"
        return f"<{text}>" if len(text) <= LONGEST_PLACE else "…"

    # ---- claims

    def claim(self, node: nodes.Node) -> str:
        """A sentence."""
        if isinstance(node, (nodes.And, nodes.Or)):
            sides = [self.side(one, type(node)) for one in (node.left, node.right)]
            return f"{sides[0]}, {'and' if isinstance(node, nodes.And) else 'or'} {sides[1]}"
        if isinstance(node, nodes.Not):
            return self.denied(node.node)
        if isinstance(node, nodes.Compare):
            return self._compared(node)
        if isinstance(node, nodes.Test):
            return f"{self.value(node.node)} {self._tested(node.name, node.args or ())}"
        if isinstance(node, nodes.CondExpr):
            return f"{self.claim(node.expr1)} if {self.claim(node.test)}, else {self.claim(node.expr2) if node.expr2 is not None else 'no'}"
        if isinstance(node, nodes.Const):
            return "always" if node.value else "never"
        return f"{self.value(node)} is yes"

    def side(self, node: nodes.Node, outer: type[nodes.Node]) -> str:
        """One side of an And or Or as text."""
        text = self.claim(node)
        return f"({text})" if isinstance(node, (nodes.And, nodes.Or)) and type(node) is not outer else text

    def denied(self, node: nodes.Node) -> str:
        if isinstance(node, nodes.Test):
            return f"{self.value(node.node)} {_negated(self._tested(node.name, node.args or ()))}"
        if isinstance(node, (nodes.And, nodes.Or, nodes.Compare, nodes.CondExpr)):
            return f"it is not so that {self.claim(node)}"
        return f"{self.value(node)} is no"

    def _compared(self, node: nodes.Compare) -> str:
        if len(node.ops) != 1:
            raise _Strange
        operand = node.ops[0]
        counted: Any = node.expr.node if isinstance(node.expr, nodes.Filter) and node.expr.name == "length" else None
        number = operand.expr.value if isinstance(operand.expr, nodes.Const) else None
        if counted is not None and number == 0 and operand.op in ("eq", "gt", "ne"):
            if isinstance(counted, nodes.Getattr):
                return f"{self.value(counted)} is {'' if operand.op == 'eq' else 'not '}empty"
            if isinstance(counted, nodes.Filter) and counted.name == "intersect":
                both = f"{self.value(counted.node)} and {self.value(counted.args[0])}"
                return f"{both} have {'nothing' if operand.op == 'eq' else 'something'} in common"
            return f"there are {'no ' if operand.op == 'eq' else ''}{_bare(self.value(counted))}"
        return f"{self.value(node.expr)} {_COMPARED[operand.op]} {self.value(operand.expr)}"

    def _tested(self, name: str, arguments: Sequence[nodes.Node]) -> str:
        """The end of a sentence, for a test."""
        if name == "version":
            asked = str(getattr(arguments[1], "value", "")) if len(arguments) > 1 else "=="
            return (_VERSIONS.get(asked) or _strange()).format(self.value(arguments[0]))
        if name in _SYMBOLS:
            return f"{_COMPARED[_SYMBOLS[name]]} {self.value(arguments[0])}"
        if name not in _TESTS:
            raise _Strange
        return _TESTS[name].format(*map(self.value, arguments))

    # ---- values

    def value(self, node: nodes.Node | None) -> str:
        """The words for a value."""
        method: Callable[[Any], str] | None = getattr(self, f"of_{type(node).__name__}", None)
        if method is None:
            return self.claim(node) if isinstance(node, (nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Test)) else _strange()
        return method(node)

    def of_Const(self, node: nodes.Const) -> str:
        text = {True: "yes", False: "no"}.get(node.value, str(node.value)) if isinstance(node.value, bool) else str(node.value)
        return text if text and " " not in text else f"“{text}”" if text.strip() else "an empty text"

    def of_Neg(self, node: nodes.Neg) -> str:
        return f"-{self.value(node.node)}"

    def of_List(self, node: nodes.List) -> str:
        return " or ".join(", ".join(map(self.value, node.items)).rsplit(", ", 1)) or "nothing"

    of_Tuple = of_List

    def of_Name(self, node: nodes.Name) -> str:
        return "it" if node.name == "item" else str(node.name)

    def of_Getattr(self, node: nodes.Getattr) -> str:
        return self._field(node.node, node.attr)

    def of_Getitem(self, node: nodes.Getitem) -> str:
        if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, int):
            return f"the {_ordinal(node.arg.value)} of {self.value(node.node)}"
        key = self.value(node.arg)
        return f"what {self._table(node.node)} says of {key}" if self._table(node.node) else f"{self.value(node.node)} of {key}"

    def _field(self, holder: nodes.Node, name: str) -> str:
        if isinstance(holder, nodes.Name) and holder.name == "item":
            return f"its {_phrase_of(name)}"
        if isinstance(holder, nodes.Name) and holder.name == "tables":
            return self._titled(name)
        if table := self._table(holder):
            return f"what {table} calls {_phrase_of(name)}"
        if isinstance(holder, nodes.Getitem) and (table := self._table(holder.node)):
            return f"the {_phrase_of(name)} of {self.value(holder.arg)} in {table}"
        if isinstance(holder, nodes.Getattr) and (table := self._table(holder.node)):
            return f"the {_phrase_of(name)} of {_phrase_of(holder.attr)} in {table}"
        if isinstance(holder, (nodes.Name, nodes.Getattr)):
            held = self.value(holder)
            return f"{held} {_phrase_of(name)}" if held.startswith("its ") else f"{held}.{name}"
        return f"the {_phrase_of(name)} of {self.value(holder)}"

    def _table(self, node: nodes.Node) -> str:
        """The title of a table of the catalogue, if the tree's node is one; else empty."""
        return self._titled(node.attr) if isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name) and node.node.name == "tables" else ""

    def _titled(self, name: str) -> str:
        title = str(getattr(self.tables.get(name), "row", {}).get("title") or _phrase_of(name))
        return f"the table “{title.split(':')[0].split(';')[0].split(',')[0]}”"

    def of_Filter(self, node: nodes.Filter) -> str:
        name, arguments = node.name, node.args or []
        if name in ("selectattr", "rejectattr", "select", "reject"):
            return self._narrowed(node, name.startswith("reject"), name.endswith("attr"))
        held = self.value(node.node)
        if name == "map":
            return self._mapped(held, node)
        if name in _PAIRS:
            return _PAIRS[name].format(held, self.value(arguments[0]))
        if name == "version_part" and isinstance(arguments[0], nodes.Const):
            return f"the {_ordinal(arguments[0].value)} part of {held}"
        if name == "gib":
            return f"{held} in GiB"
        if name == "default":
            return f"{held} (or {self.value(arguments[0])})"
        if name in _OF:
            return f"{_OF[name]} {held}"
        return held if name in _SILENT else _strange()

    def _mapped(self, held: str, node: nodes.Filter) -> str:
        field = next((one.value.value for one in node.kwargs or () if one.key == "attribute" and isinstance(one.value, nodes.Const)), None)
        if field is None:
            return held if node.args and getattr(node.args[0], "value", "") in _SILENT else _strange()
        return f"the {_phrase_of(str(field))} of {held}"

    def _narrowed(self, node: nodes.Filter, rejects: bool, by_field: bool) -> str:
        """X whose field …; X that …"""
        arguments = list(node.args or [])
        subject = "that"
        if by_field:
            subject = f"whose {_phrase_of(str(getattr(arguments.pop(0), 'value', '')))}"
        test = str(getattr(arguments.pop(0), "value", "")) if arguments else ""
        phrase = self._tested(test, arguments) if test else "is yes"
        held = self.value(node.node)
        return f"{held} {'and ' if ' whose ' in held or ' that ' in held else ''}{subject} {_negated(phrase) if rejects else phrase}"

    def of_Concat(self, node: nodes.Concat) -> str:
        return ", ".join(self.value(one) for one in node.nodes if not isinstance(one, nodes.Const)) or _strange()

    def of_CondExpr(self, node: nodes.CondExpr) -> str:
        other = self.value(node.expr2) if node.expr2 is not None else ""
        first = self.value(node.expr1)
        return first if other in ("", "an empty text") else f"{first} or {other}"

    def _calculated(self, node: nodes.BinExpr) -> str:
        return f"{self.value(node.left)} {node.operator} {self.value(node.right)}"

    of_Add = of_Sub = of_Mul = of_Div = of_FloorDiv = of_Mod = _calculated


def _phrase_of(name: str) -> str:
    """A field's name as words: nvlinks active from by_gpu.nvlinks_active."""
    return name.rpartition(".")[2].replace("_", " ")


def _bare(phrase: str) -> str:
    return phrase.removeprefix("the ")


def _negated(phrase: str) -> str:
    """The opposite: is 5 -> is not 5, and the reverse."""
    first, _, rest = phrase.partition(" ")
    return f"{first} {rest[4:]}" if rest.startswith("not ") else f"{_NOT[first]} {rest}"


def _ordinal(place: int) -> str:
    return _ORDINALS[place] if 0 <= place < len(_ORDINALS) else "last" if place == -1 else _strange()


def _strange() -> str:
    raise _Strange
