"""Compiles the syntax trees of expressions: an allow-list of Jinja's nodes, each to a closure over
facts.

Compiling also checks: a fact path that does not exist, texts compared with numbers, a value that an
enumeration does not have. The same pass finds the paths that an expression can read, so that it is
judged once for each distinct set of values.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import nodes

from unhang.core.schemas.reading import nearest
from unhang.core.schemas.shapes import ANY, FLAG, NUMBER, TEXT, Shape, fact_shapes, policy_shape
from unhang.judge.rules.closures import as_text, both, calculated, either, entry_at, item_at
from unhang.judge.rules.values import World, bounded, plain, shown, truth

LONGEST_LITERAL = 1000
_PLURAL = re.compile(
    r"^ (GPU|NVSwitch|process|time|crash|pair|plugin|package|name|address|other|lane|node|port|link|file)(?:es|s)\b"  # noqa: E501
)
WHOLE = "**"  # in a read path: everything below

Path = tuple[str, ...]
Run = Callable[[World], Any]


class ExpressionError(ValueError):
    """An expression that is not accepted; the message is one line for its author."""


@cache
def shape_at(path: Path) -> Shape:
    """Of a fact or key of the policy, with * for the items of a list; ANY itself for none."""
    shape = {"policy": policy_shape(), **fact_shapes()}.get(path[0], ANY)
    for part in path[1:]:
        if part != WHOLE:
            below = shape.item if part == "*" or shape.kind == "map" else shape.fields.get(part)
            shape = below or ANY
    return shape


@dataclass(frozen=True)
class Kind:
    """The type of a value, which is known before any node is judged. path: its path in the facts,
    None for a computed value. reads: the facts that a name with a computed value looks at."""

    shape: Shape
    path: Path | None = None
    inner: Kind | None = None  # kind of the items of a computed list
    literal: Any = None
    reads: frozenset[Path] = frozenset()

    def items(self) -> Kind:
        """The kind of a list's items."""
        if self.inner is not None:
            return self.inner
        return Kind(self.shape.item or ANY, extended(self.path, "*"))


def list_of(inner: Kind) -> Kind:
    """The kind of a computed list."""
    return Kind(Shape("list", item=inner.shape), None, inner)


class SyntaxCompiler:
    """One pass over one syntax tree; visit_ methods return (kind, closure). An object is used for
    one tree only.

    Comparisons, tests and filters are added by checks.Compiler.
    """

    def __init__(self, names: Mapping[str, Kind]):
        self.names = names
        self.reads: set[Path] = set()
        self.uses: set[str] = set()

    def visit(self, node: nodes.Node) -> tuple[Kind, Run]:
        """Compiles a node. Raises ExpressionError for a node that is not on the allow-list."""
        method = getattr(self, f"visit_{type(node).__name__}", None)
        if method is None:
            raise ExpressionError(f"{_refused(node)} not allowed")
        kind, run = method(node)
        self.note(kind)
        return kind, run

    def note(self, kind: Kind) -> None:
        """Records a fact path that can be read."""
        if kind.path is None:
            return
        if kind.shape.kind == "map":
            return  # the reader of a map records whether it reads one key or all
        self.reads.add(kind.path)

    def whole(self, kind: Kind) -> None:
        """Records a map that is read with all its keys."""
        if kind.path is not None and kind.shape.kind == "map":
            self.reads.add((*kind.path, WHOLE))

    # ---- templates

    def template(self, tree: nodes.Template) -> tuple[Kind, Run]:
        """A template, which may contain only text and {{ }}."""
        pieces: list[Run] = []
        counts: list[int] = []  # places of numbers of something, which follows in the plural
        for output in tree.body:
            if not isinstance(output, nodes.Output):
                raise ExpressionError(f"{_refused(output)} not allowed in a template")
            for node, after in itertools.zip_longest(output.nodes, output.nodes[1:]):
                if isinstance(node, nodes.TemplateData):
                    pieces.append(lambda world, text=node.data: text)  # type: ignore[misc]
                    continue
                kind, run = self.visit(node)
                self.need_value(kind, "{{ }}")
                if isinstance(after, nodes.TemplateData) and _PLURAL.match(after.data):
                    counts.append(len(pieces))
                pieces.append(as_text(run))

        def text(world: Any) -> str:
            texts = [piece(world) for piece in pieces]
            for place in counts:
                if texts[place] == "1":
                    texts[place + 1] = _PLURAL.sub(r" \1", texts[place + 1], count=1)
            return bounded("".join(texts))

        return Kind(TEXT), text

    def need_value(self, kind: Kind, what: str) -> None:
        """Refuses an object, which has no text and no equality: the expression must name a
        field."""
        inside = kind
        while inside.shape.kind == "list":
            inside = inside.items()
        if inside.shape.kind == "object":
            raise ExpressionError(
                f"{what} needs a value, not an object: name one of its fields"
                f" ({', '.join(list(inside.shape.fields)[:8])}, …)"
            )
        self.whole(inside)
        if kind.shape.kind == "list" and kind.path is not None and inside.shape.is_scalar:
            self.reads.add((*kind.path, "*"))

    # ---- leaves

    def visit_Const(self, node: nodes.Const) -> tuple[Kind, Run]:
        value = node.value
        if (isinstance(value, str) and len(value) > LONGEST_LITERAL) or (
            isinstance(value, (int, float)) and abs(value) > 1e18
        ):
            raise ExpressionError(f"the literal {str(value)[:20]}… is too large")
        if value is None:
            raise ExpressionError(
                "'none' is not allowed: a fact without value is unknown, ask 'is known'"
            )
        shape = (
            FLAG if isinstance(value, bool) else NUMBER if isinstance(value, (int, float)) else TEXT
        )
        return Kind(shape, literal=value), lambda world: value

    def visit_Name(self, node: nodes.Name) -> tuple[Kind, Run]:
        name = node.name
        if name not in self.names:
            raise ExpressionError(
                f"unknown name {name!r}{nearest(name, self.names)}; known are"
                f" {', '.join(sorted(self.names))}"
            )
        self.uses.add(name)
        self.reads |= self.names[name].reads
        return self.names[name], lambda world: world.roots[name]

    def visit_List(self, node: nodes.List) -> tuple[Kind, Run]:
        if len(node.items) > 500:
            raise ExpressionError("a list of more than 500 items")
        kinds, runs = (
            zip(*(self.visit(one) for one in node.items), strict=True) if node.items else ((), ())
        )
        for kind in kinds:
            self.need_value(kind, "a list")
        same = {kind.shape.kind for kind in kinds}
        inner = Kind(kinds[0].shape if len(same) == 1 else ANY)
        literal = (
            [kind.literal for kind in kinds]
            if all(kind.literal is not None for kind in kinds)
            else None
        )
        return Kind(Shape("list", item=inner.shape), None, inner, literal), lambda world: [
            run(world) for run in runs
        ]

    visit_Tuple = visit_List

    # ---- paths

    def visit_Getattr(self, node: nodes.Getattr) -> tuple[Kind, Run]:
        kind, run = self.visit(node.node)
        return self.field(kind, run, node.attr)

    def visit_Getitem(self, node: nodes.Getitem) -> tuple[Kind, Run]:
        kind, run = self.visit(node.node)
        if isinstance(node.arg, nodes.Slice):
            raise ExpressionError("slices are not allowed; use first, last or truncate")
        key, key_run = self.visit(node.arg)
        if isinstance(key.literal, str):
            return self.field(kind, run, key.literal)
        if kind.shape.kind == "list" and key.shape.kind == "number":
            return kind.items(), item_at(run, key_run)
        if kind.shape.kind == "map" and key.shape.kind in ("text", "number", "any"):
            self.whole(kind)
            below = Kind(kind.shape.item or ANY, extended(kind.path, WHOLE))
            return below, entry_at(run, key_run)
        raise ExpressionError(
            f"[…] needs a list and a number, or a map and a key, not {name_of(kind)} and"
            f" {name_of(key)}"
        )

    def field(self, kind: Kind, run: Run, name: str) -> tuple[Kind, Run]:
        """One field of an object, one key of a map. Raises ExpressionError with the nearest
        name."""
        below = self.below(kind, name)
        self.note(below)
        return below, lambda world: world.field(run(world), name)

    def below(self, kind: Kind, name: str) -> Kind:
        """The kind of a field."""
        if name.startswith("_"):
            raise ExpressionError(f"{name!r} not allowed: names that start with an underscore")
        place = ".".join(kind.path).replace(".*", "[*]") if kind.path else "this value"
        if kind.shape.kind == "map":
            return Kind(kind.shape.item or ANY, extended(kind.path, name))
        if kind.shape.kind != "object":
            hint = (
                ": use selectattr or map(attribute=…) on a list"
                if kind.shape.kind == "list"
                else ""
            )
            raise ExpressionError(f"{place} is {name_of(kind)} and has no field {name!r}{hint}")
        if name not in kind.shape.fields:
            known = kind.shape.fields
            raise ExpressionError(
                f"unknown fact path {place}.{name}{nearest(name, known)}; {place} has"
                f" {', '.join(sorted(known))}"
            )
        return Kind(kind.shape.fields[name], extended(kind.path, name))

    def follow(self, kind: Kind, dotted: str) -> tuple[Kind, Path]:
        """selectattr('a.b', …): the kind below an item."""
        names = tuple(dotted.split("."))
        for name in names:
            kind = self.below(kind, name)
            self.note(kind)
        return kind, names

    # ---- logic: unknown and false is false, unknown or true is true, else unknown

    def visit_And(self, node: nodes.And | nodes.Or) -> tuple[Kind, Run]:
        join = both if isinstance(node, nodes.And) else either
        return Kind(FLAG), join(self.claim(node.left), self.claim(node.right))

    visit_Or = visit_And

    def visit_Not(self, node: nodes.Not) -> tuple[Kind, Run]:
        run = self.claim(node.node)
        return Kind(FLAG), lambda world: not truth(run(world))

    def claim(self, node: nodes.Node) -> Run:
        """An expression that is true or false."""
        kind, run = self.visit(node)
        if kind.shape.kind not in ("flag", "any"):
            raise ExpressionError(
                f"and, or, not, if need yes or no, not {name_of(kind)}: write a comparison, such as"
                " '… > 0' or '… | length > 0'"
            )
        return run

    def visit_CondExpr(self, node: nodes.CondExpr) -> tuple[Kind, Run]:
        test = self.claim(node.test)
        yes_kind, yes = self.visit(node.expr1)
        no_kind, no = (
            self.visit(node.expr2) if node.expr2 is not None else (Kind(TEXT), lambda world: "")
        )
        self.need_value(yes_kind, "if … else")
        self.need_value(no_kind, "if … else")
        kinds = {yes_kind.shape.kind, no_kind.shape.kind}
        words = tuple(one.value for one in (node.expr1, node.expr2) if isinstance(one, nodes.Const))
        values = words if len(words) == 2 else ()
        kind = Kind(Shape(yes_kind.shape.kind, values=values) if len(kinds) == 1 else ANY)
        if "list" in kinds:
            if len(kinds) > 1:
                raise ExpressionError("both sides of if … else must be lists, or neither")
            kind = list_of(Kind(ANY))
        return kind, lambda world: yes(world) if truth(test(world)) else no(world)

    # ---- numbers and text

    def _arithmetic(self, node: nodes.BinExpr) -> tuple[Kind, Run]:
        (left_kind, left), (right_kind, right) = self.visit(node.left), self.visit(node.right)
        for kind in (left_kind, right_kind):
            if kind.shape.kind not in ("number", "any"):
                raise ExpressionError(
                    f"{node.operator} needs numbers, not {name_of(kind)}; texts are joined with ~"
                )
        return Kind(NUMBER), calculated(node.operator, left, right)

    visit_Add = visit_Sub = visit_Mul = visit_Div = visit_FloorDiv = visit_Mod = _arithmetic

    def visit_Neg(self, node: nodes.Neg) -> tuple[Kind, Run]:
        kind, run = self.visit(node.node)
        if kind.shape.kind not in ("number", "any"):
            raise ExpressionError(f"- needs a number, not {name_of(kind)}")
        return Kind(NUMBER), calculated("-", lambda world: 0, run)

    def visit_Concat(self, node: nodes.Concat) -> tuple[Kind, Run]:
        parts = [self.visit(one) for one in node.nodes]
        for kind, _ in parts:
            self.need_value(kind, "~")
        return Kind(TEXT), lambda world: bounded(
            "".join(shown(plain(run(world))) for _, run in parts)
        )


_REFUSED = {
    "Call": "calls are", "For": "loops are", "Macro": "macros are", "If": "{% if %} is",
    "Assign": "{% set %} is", "Pow": "** is",
    "Include": "includes are", "Import": "imports are", "FromImport": "imports are",
    "Dict": "map literals are", "CallBlock": "calls are",
    "FilterBlock": "filter blocks are", "With": "{% with %} is", "Extends": "{% extends %} is",
    "Block": "blocks are",
}  # fmt: skip


def _refused(node: nodes.Node) -> str:
    name = type(node).__name__
    return _REFUSED.get(name, name.lower())


def name_of(kind: Kind) -> str:
    """A kind in words: a number, an object."""
    return {"flag": "a yes/no value", "any": "a value", "object": "an object"}.get(
        kind.shape.kind, f"a {kind.shape.kind}"
    )


def extended(path: Path | None, name: str) -> Path | None:
    return None if path is None else (*path, name)
