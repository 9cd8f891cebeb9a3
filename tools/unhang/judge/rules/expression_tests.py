"""Comparisons and tests of expressions: checks their arguments while compiling, and makes the
closures that run them."""

from __future__ import annotations

from typing import Any

from jinja2 import nodes

from unhang.core.schemas.reading import nearest
from unhang.core.schemas.shapes import ANY, FLAG
from unhang.judge.rules.functions import ARITY, TEST_NAMES, TESTS, is_version
from unhang.judge.rules.syntax import ExpressionError, Kind, Run, SyntaxCompiler, name_of
from unhang.judge.rules.values import Unknown, World
from unhang_node.base.versions.compare import OPERATORS, ORDERS, check_version

_KNOWN = {"known", "unknown"}
NO_REGEX = (
    ": rules have no regular expressions, which could run for ever; write is like('*text*'),"
    " startswith, endswith or 'text' in …"
)


def comparison(compiler: SyntaxCompiler, node: nodes.Compare) -> tuple[Kind, Run]:
    """a < b, also chained; == and in."""
    left_kind, left = compiler.visit(node.expr)
    links = []
    for operand in node.ops:
        right_kind, right = compiler.visit(operand.expr)
        symbol = TEST_NAMES.get(operand.op, "in")
        _check_comparison(compiler, symbol, left_kind, right_kind)
        links.append((TESTS[symbol], left, right, operand.op == "notin"))
        left_kind, left = right_kind, right

    def run(world: World) -> bool:
        world.step()
        return all(
            check(world, one(world), other(world)) != negated
            for check, one, other, negated in links
        )

    return Kind(FLAG), run


def _check_comparison(compiler: SyntaxCompiler, symbol: str, left: Kind, right: Kind) -> None:
    compiler.need_value(left, symbol)
    if symbol == "in":
        compiler.need_value(Kind(ANY), symbol)
        _check_membership(compiler, left, right)
        return
    compiler.need_value(right, symbol)
    kinds = {left.shape.kind, right.shape.kind} - {"any"}
    if len(kinds) > 1:
        raise ExpressionError(
            f"{name_of(left)} and {name_of(right)} are never {symbol} each other: they are of"
            " different kinds"
        )
    if symbol in ("<", "<=", ">", ">=") and (left.shape.version or right.shape.version):
        raise ExpressionError(
            f"versions have an order of their own: write 'is version(…, {symbol!r})' instead of"
            f" {symbol}"
        )
    for one, other in ((left, right), (right, left)):
        _check_value(one, other.literal)


def _check_value(kind: Kind, literal: Any) -> None:
    """Refuses a literal that is not a value of the enumeration, or of a free text that is nearly
    one of its usual values: a misspelt one."""
    allowed = kind.shape.values or kind.shape.known
    if not isinstance(literal, str) or not allowed or literal in allowed:
        return
    meant = nearest(literal, allowed, 0.6 if kind.shape.values else 0.8)
    if meant or kind.shape.values:
        raise ExpressionError(
            f"{'.'.join(kind.path or ())} is never {literal!r}{meant}; it is one of"
            f" {', '.join(map(str, allowed))}"
        )


def _check_membership(compiler: SyntaxCompiler, member: Kind, holder: Kind) -> None:
    if holder.shape.kind == "map":
        compiler.whole(holder)
        return
    if holder.shape.kind == "list":
        compiler.need_value(holder, "in")
        inside = holder.items().shape.kind
        if "any" not in (inside, member.shape.kind) and inside != member.shape.kind:
            raise ExpressionError(f"a list of {inside} never holds {name_of(member)}")
        for literal in holder.literal if isinstance(holder.literal, list) else ():
            _check_value(member, literal)
        _check_value(holder.items(), member.literal)
        return
    if holder.shape.kind not in ("text", "any"):
        raise ExpressionError(f"'in' needs a list, a map or a text, not {name_of(holder)}")
    if member.shape.kind not in ("text", "any"):
        raise ExpressionError(f"'in' a text needs a text, not {name_of(member)}")


# ---- tests


def test(compiler: SyntaxCompiler, node: nodes.Test) -> tuple[Kind, Run]:
    """value is NAME(arguments)."""
    kind, run = compiler.visit(node.node)
    arguments = [compiler.visit(one) for one in node.args or ()]
    check = bound_test(compiler, node.name, kind, arguments, keywords_of(node))

    def answer(world: World) -> bool:
        world.step()
        return check(world, run(world))

    return Kind(FLAG), answer


def keywords_of(node: nodes.Test | nodes.Filter) -> dict[str, Any]:
    """name=literal arguments. Raises ExpressionError."""
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        raise ExpressionError("* and ** arguments are not allowed")
    found: dict[str, Any] = {}
    for one in node.kwargs or ():
        if not isinstance(one.value, nodes.Const):
            raise ExpressionError(f"{one.key}= needs a literal")
        found[str(one.key)] = one.value.value
    return found


def bound_test(
    compiler: SyntaxCompiler,
    name: str,
    kind: Kind,
    arguments: list[tuple[Kind, Run]],
    keywords: dict[str, Any],
) -> Any:
    """A test with its arguments, checked: (world, value) -> bool. Raises ExpressionError."""
    name = TEST_NAMES.get(name, name)
    if name in _KNOWN:
        wanted = name == "known"
        return lambda world, value: isinstance(value, Unknown) != wanted
    if name == "version":
        return _version(kind, arguments, keywords)
    if name not in TESTS:
        hint = (
            ": ask 'is known'"
            if name in ("defined", "undefined", "none")
            else nearest(name, [*TESTS, *TEST_NAMES, *_KNOWN, "version"])
        )
        hint = NO_REGEX if name in ("match", "search", "regex") else hint
        raise ExpressionError(f"there is no test {name!r}{hint}")
    if keywords:
        raise ExpressionError(f"test {name!r} takes no {next(iter(keywords))}=")
    if len(arguments) != ARITY.get(name, 1):
        raise ExpressionError(
            f"test {name!r} takes {ARITY.get(name, 1)} argument(s), not {len(arguments)}"
        )
    _check_test(compiler, name, kind, [one for one, _ in arguments])
    function = TESTS[name]
    runs = [run for _, run in arguments]
    return lambda world, value: function(world, value, *(run(world) for run in runs))


def _check_test(compiler: SyntaxCompiler, name: str, kind: Kind, arguments: list[Kind]) -> None:
    if name in ("==", "!=", "<", "<=", ">", ">=", "in"):
        _check_comparison(compiler, name, kind, arguments[0])
    elif name == "contains":
        _check_comparison(compiler, "in", arguments[0], kind)
    elif name in ("all", "any", "subset", "meets"):
        for one in (kind, *arguments):
            if one.shape.kind != "list":
                raise ExpressionError(f"test {name!r} needs a list, not {name_of(one)}")
            compiler.need_value(one, name)
    elif name == "whole":
        if kind.shape.kind not in ("text", "any"):
            raise ExpressionError(f"test 'whole' needs a text, not {name_of(kind)}")
    elif name in ("true", "false"):
        if kind.shape.kind not in ("flag", "any"):
            raise ExpressionError(f"{name_of(kind)} is neither true nor false")
    elif kind.shape.kind not in ("text", "any") or arguments[0].shape.kind not in ("text", "any"):
        raise ExpressionError(f"test {name!r} needs texts")


def _version(kind: Kind, arguments: list[tuple[Kind, Run]], keywords: dict[str, Any]) -> Any:
    """is version(other, operator, version_type=…)."""
    if more := set(keywords) - {"version_type", "operator"}:
        raise ExpressionError(f"test 'version' takes no {more.pop()}=")
    if not 1 <= len(arguments) <= 2:
        raise ExpressionError("test 'version' is written version('1.2.3', '>=')")
    operator = arguments[1][0].literal if len(arguments) == 2 else keywords.get("operator", "==")
    if operator not in OPERATORS:
        raise ExpressionError(
            f"test 'version': {operator!r} is not an operator; allowed are"
            f" {', '.join(sorted(OPERATORS))}"
        )
    other_kind, other = arguments[0]
    orders = {one.shape.version for one in (kind, other_kind) if one.shape.version}
    order = keywords.get("version_type") or (orders.pop() if len(orders) == 1 else None)
    if len(orders) > 1:
        raise ExpressionError(
            f"versions of two types ({', '.join(sorted(str(one) for one in orders))}) have no"
            " common order: give version_type="
        )
    if order is None:
        raise ExpressionError(
            f"this fact has no version type: give version_type=, one of {', '.join(ORDERS)}"
        )
    if order not in ORDERS:
        raise ExpressionError(
            f"version_type={order!r} is unknown{nearest(order, ORDERS)}; allowed are"
            f" {', '.join(ORDERS)}"
        )
    for one in (kind, other_kind):
        if one.shape.kind not in ("text", "any") and one.literal is None:
            raise ExpressionError(f"test 'version' needs texts, not {name_of(one)}")
        if one.literal is not None and (problem := check_version(one.literal, order)):
            raise ExpressionError(f"bad version literal: {problem}")
    return lambda world, value: is_version(world, value, other(world), operator, order=order)
