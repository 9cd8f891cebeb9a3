"""Expressions and templates of rules: Jinja's syntax, compiled by an allow-list, evaluated over
facts.

Jinja only parses: there are no calls, loops, macros or attributes of Python objects, and each step
is counted. Its runtime would not do: `false and unknown` must be false in any order, but Python's
`and`, `or` and `not` need a plain truth value; and its sandbox stops neither `'a' * 10**10` nor a
bad regular expression. CEL and Rego are known to no operator from Ansible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.parser import Parser

from unhang.core.schemas.shapes import TEXT
from unhang.judge.rules.checks import Compiler
from unhang.judge.rules.syntax import WHOLE, ExpressionError, Kind, Path, Run, list_of
from unhang.judge.rules.values import RuleStopped, Undecided, Unknown, World, printable

LONGEST_SOURCE = 4000
DEEPEST = 60
# parses only; nothing is rendered by it
_ENVIRONMENT = jinja2.Environment(autoescape=False)  # noqa: S701


class Expression:
    """An expression or template. reads: the fact paths that can decide it; uses: the names it
    begins with; kind: of its value. compiled: returns kind and function, and is called when one of
    them is needed; tree: returns its syntax tree."""

    def __init__(
        self, source: str, reads: frozenset[Path], uses: frozenset[str],
        compiled: Callable[[], tuple[Kind, Run]], tree: Callable[[], nodes.Node]
    ):  # fmt: skip
        self.source, self.reads, self.uses = source, reads, uses
        self.tree = tree
        self._compiled = compiled

    @property
    def kind(self) -> Kind:
        """The kind of its value."""
        return self._made[0]

    @cached_property
    def _made(self) -> tuple[Kind, Run]:
        return self._compiled()

    def evaluate(self, world: World) -> Any:
        """The value: plain, a Fact, an Unknown or a list of them. Raises only Undecided and
        RuleStopped."""
        run = self._made[1]
        try:
            return run(world)
        except (Undecided, RuleStopped):
            raise
        except RecursionError:
            raise RuleStopped("it nests too deeply") from None
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as problem:
            raise Undecided(
                Unknown(
                    "unread",
                    "",
                    "error",
                    f"{self.source[:80]!r} cannot be evaluated: {printable(str(problem))[:200]}",
                )
            ) from None


def compile_expression(source: str | bool, names: Mapping[str, Kind]) -> Expression:
    """One expression over the given names. Raises ExpressionError."""
    text = str(source).lower() if isinstance(source, bool) else source
    _check_size(text)
    tree = parsed(text)
    return _compiled(text, names, lambda compiler: compiler.visit(tree), tree)


@cache
def parsed(text: str) -> nodes.Expr:
    """The syntax tree of one expression. Raises ExpressionError."""
    try:
        parser = Parser(_ENVIRONMENT, text, state="variable")
        tree = parser.parse_expression()
        if not parser.stream.eos:
            raise ExpressionError(
                f"unexpected {parser.stream.current.value!r} after the expression"
            )
    except jinja2.TemplateSyntaxError as problem:
        raise ExpressionError(f"syntax: {problem.message}") from None
    except RecursionError:
        raise ExpressionError("nests too deeply") from None
    return tree


def compile_template(source: str, names: Mapping[str, Kind]) -> Expression:
    """Text that quotes values in {{ }}. Raises ExpressionError."""
    _check_size(source)
    if "{" not in source:  # half of all texts, which need no parser
        made = Kind(TEXT), lambda world: source
        nothing: Any = frozenset()
        return Expression(source, nothing, nothing, lambda: made, lambda: parsed_template(source))
    tree = parsed_template(source)
    return _compiled(source, names, lambda compiler: compiler.template(tree), tree)


def parsed_template(source: str) -> nodes.Template:
    """The syntax tree of a text that quotes values in {{ }}. Raises ExpressionError."""
    try:
        return _ENVIRONMENT.parse(source)
    except jinja2.TemplateSyntaxError as problem:
        raise ExpressionError(f"syntax: {problem.message}") from None
    except RecursionError:
        raise ExpressionError("nests too deeply") from None


def _check_size(source: str) -> None:
    if len(source) > LONGEST_SOURCE:
        raise ExpressionError(
            f"is {len(source)} characters long, at most {LONGEST_SOURCE} are allowed"
        )


def _depth(tree: nodes.Node) -> int:
    deepest, level = 0, [tree]
    while level and deepest <= DEEPEST:
        level = [child for node in level for child in node.iter_child_nodes()]
        deepest += 1
    return deepest


def _compiled(
    source: str,
    names: Mapping[str, Kind],
    work: Callable[[Compiler], tuple[Kind, Run]],
    tree: nodes.Node,
) -> Expression:
    if _depth(tree) > DEEPEST:
        raise ExpressionError("nests too deeply")
    compiler = Compiler(names)
    made = work(compiler)
    return Expression(
        source, pruned(compiler.reads), frozenset(compiler.uses), lambda: made, lambda: tree
    )


def pruned(reads: Iterable[Path]) -> frozenset[Path]:
    """Read paths without those that only lead to another: gpus.devices goes when
    gpus.devices.*.uuid is read."""
    cut = {path[: path.index(WHOLE) + 1] if WHOLE in path else path for path in reads}
    leading = {path[:end] for path in cut for end in range(1, len(path))}
    return frozenset(cut - leading)


__all__ = [
    "Expression",
    "ExpressionError",
    "Kind",
    "Path",
    "compile_expression",
    "compile_template",
    "list_of",
    "pruned",
]
