"""Filters of expressions: checks their arguments while compiling, and makes the closures that run
them."""

from __future__ import annotations

from typing import Any

from jinja2 import nodes

from unhang.core.schemas.reading import nearest
from unhang.core.schemas.shapes import ANY, NUMBER, TEXT, Shape
from unhang.judge.rules.choosing import choose
from unhang.judge.rules.expression_tests import NO_REGEX, bound_test, keywords_of
from unhang.judge.rules.functions import FILTERS, follow
from unhang.judge.rules.special_filters import bursts, rows_of
from unhang.judge.rules.syntax import (
    ExpressionError,
    Kind,
    Run,
    SyntaxCompiler,
    extended,
    list_of,
    name_of,
)
from unhang.judge.rules.values import Fact, Unknown, World, plain, truth
from unhang_node.base.versions.compare import check_version

_SIEVES = {"intersect", "difference", "union"}
_KEEP = {"list", "unique", "sort", "known", "intersect", "difference"}
_TO_NUMBER = {"length", "int", "abs", "round", "sum", "version_part"}
_ON_VALUES = _SIEVES | {"unique", "sort", "min", "max", "sum", "join"}
_ON_LISTS = _ON_VALUES | {"first", "last", "flatten", "known", "list"}
_NEEDED = _SIEVES | {"expand_names"}  # they need one argument
_MAY = {"join", "round", "truncate", "split", "version_part", "trim"}
_ALIASES = {"count": "length", "min_": "min"}
_SPECIAL = (
    "selectattr",
    "rejectattr",
    "select",
    "reject",
    "map",
    "default",
    "items",
    "keys",
    "values",
    "bursts",
    "rows_of",
)


def filtered(compiler: SyntaxCompiler, node: nodes.Filter) -> tuple[Kind, Run]:
    """value | NAME(arguments)."""
    if node.node is None:
        raise ExpressionError("filter blocks are not allowed")
    kind, run = compiler.visit(node.node)
    arguments = [compiler.visit(one) for one in node.args or ()]
    keywords = keywords_of(node)
    name = _ALIASES.get(node.name, node.name)
    if name in _SPECIAL[:4]:
        return _selected(compiler, name, kind, run, arguments, keywords)
    if name == "map":
        return _mapped(compiler, kind, run, arguments, keywords)
    if name == "default":
        return _default(compiler, kind, run, arguments, keywords)
    if name in ("items", "keys", "values"):
        return _entries(compiler, name, kind, run)
    if name in ("bursts", "rows_of") and not keywords:
        return (bursts if name == "bursts" else rows_of)(compiler, kind, run, arguments)
    if keywords:
        raise ExpressionError(f"filter {name!r} takes no {next(iter(keywords))}=")
    out, function = bound_filter(compiler, name, kind, [one for one, _ in arguments])
    runs = [one for _, one in arguments]

    def answer(world: World) -> Any:
        world.step()
        return function(world, run(world), *(one(world) for one in runs))

    return out, answer


def bound_filter(
    compiler: SyntaxCompiler, name: str, kind: Kind, arguments: list[Kind]
) -> tuple[Kind, Any]:
    """(kind of the result, function). Raises ExpressionError."""
    if name not in FILTERS:
        raise ExpressionError(
            "there is no filter"
            f" {name!r}{NO_REGEX if name.startswith('regex') else nearest(name, [*FILTERS, *_SPECIAL])}"  # noqa: E501
        )
    most = int(name in _NEEDED | _MAY)
    if len(arguments) > most or (name in _NEEDED and not arguments):
        raise ExpressionError(f"filter {name!r} takes {most} argument(s), not {len(arguments)}")
    shape = kind.shape.kind
    if name in _ON_LISTS and shape != "list":
        raise ExpressionError(f"filter {name!r} needs a list, not {name_of(kind)}")
    if name == "length" and shape not in ("list", "map", "text", "any"):
        raise ExpressionError(f"{name_of(kind)} has no length")
    if name not in _ON_LISTS and name != "length" and shape in ("list", "map", "object"):
        raise ExpressionError(f"filter {name!r} needs a single value, not {name_of(kind)}")
    if name in _ON_VALUES:
        compiler.need_value(kind, name)
    for one in arguments:
        compiler.need_value(one, name)
    if name == "expand_names" and arguments[0].shape.kind != "list":
        raise ExpressionError(
            f"filter 'expand_names' needs a list of names, not {name_of(arguments[0])}"
        )
    compiler.whole(kind)
    return _result(name, kind, arguments), FILTERS[name]


def _result(name: str, kind: Kind, arguments: list[Kind]) -> Kind:
    if name in _KEEP:
        return list_of(kind.items())
    if name == "union":
        same = kind.items().shape.kind == arguments[0].items().shape.kind
        return list_of(Kind(Shape(kind.items().shape.kind) if same else ANY))
    if name in ("first", "last", "min", "max"):
        return kind.items()
    if name == "flatten":
        if kind.items().shape.kind != "list":
            raise ExpressionError(
                f"filter 'flatten' needs a list of lists, not of {kind.items().shape.kind}"
            )
        return list_of(kind.items().items())
    if name in ("split", "expand_names"):
        return list_of(Kind(TEXT))
    return Kind(NUMBER) if name in _TO_NUMBER else Kind(TEXT)


def _need_list(name: str, kind: Kind) -> Kind:
    if kind.shape.kind != "list":
        raise ExpressionError(f"filter {name!r} needs a list, not {name_of(kind)}")
    return kind.items()


def _selected(
    compiler: SyntaxCompiler,
    name: str,
    kind: Kind,
    run: Run,
    arguments: list[tuple[Kind, Run]],
    keywords: dict,
) -> tuple[Kind, Run]:
    """selectattr('a.b', test, …), rejectattr, select(test, …), reject."""
    item = inside = _need_list(name, kind)
    names: tuple[str, ...] = ()
    if name.endswith("attr"):
        if not arguments or not isinstance(arguments[0][0].literal, str):
            raise ExpressionError(f"{name} needs the name of a field as its first argument")
        inside, names = compiler.follow(item, arguments.pop(0)[0].literal)
    if arguments:
        called = arguments.pop(0)[0].literal
        if not isinstance(called, str):
            raise ExpressionError(f"{name} needs the name of a test")
        check = bound_test(compiler, called, inside, arguments, keywords)
    else:
        if inside.shape.kind not in ("flag", "any"):
            raise ExpressionError(
                f"{name} without a test needs a yes/no field, not {name_of(inside)}"
            )
        check = lambda world, value: truth(value)  # noqa: E731
    wanted = name.startswith("select")

    def answer(world: World) -> list[Any]:
        return choose(
            world,
            world.items(run(world)),
            lambda one: check(world, follow(world, one, names)) == wanted,
        )

    return list_of(item), answer


def _mapped(
    compiler: SyntaxCompiler,
    kind: Kind,
    run: Run,
    arguments: list[tuple[Kind, Run]],
    keywords: dict,
) -> tuple[Kind, Run]:
    """map(attribute='a.b') or map('filter', …)."""
    item = _need_list("map", kind)
    if set(keywords) == {"attribute"} and isinstance(keywords["attribute"], str) and not arguments:
        inside, names = compiler.follow(item, keywords["attribute"])
        return list_of(inside), lambda world: [
            follow(world, one, names) for one in world.items(run(world))
        ]
    if keywords or not arguments or not isinstance(arguments[0][0].literal, str):
        raise ExpressionError("map is written map(attribute='field') or map('filter')")
    if arguments[0][0].literal in ("items", "keys", "values") and len(arguments) == 1:
        out, entries = _entries_of(compiler, arguments[0][0].literal, item)
        return list_of(out), lambda world: [entries(world, one) for one in world.items(run(world))]
    out, function = bound_filter(
        compiler, arguments[0][0].literal, item, [one for one, _ in arguments[1:]]
    )
    runs = [one for _, one in arguments[1:]]
    return list_of(out), lambda world: [
        function(world, one, *(each(world) for each in runs)) for one in world.items(run(world))
    ]


def _default(
    compiler: SyntaxCompiler,
    kind: Kind,
    run: Run,
    arguments: list[tuple[Kind, Run]],
    keywords: dict,
) -> tuple[Kind, Run]:
    """policy.key | default(5): only for keys that the policy does not set. A fact that was not read
    has no default."""
    if len(arguments) != 1 or keywords:
        raise ExpressionError("default takes one argument")
    if kind.path is None or kind.path[0] != "policy":
        raise ExpressionError(
            "default is for policy keys alone: a fact that was not read must stay unknown"
        )
    other_kind, other = arguments[0]
    if (
        "any" not in (kind.shape.kind, other_kind.shape.kind)
        and kind.shape.kind != other_kind.shape.kind
    ):
        raise ExpressionError(
            f"the default of {'.'.join(kind.path)} must be {name_of(kind)}, not"
            f" {name_of(other_kind)}"
        )
    if kind.shape.kind == "object":
        raise ExpressionError("default needs a value, not an object")
    compiler.need_value(kind, "default")
    if (
        kind.shape.version
        and other_kind.literal is not None
        and (problem := check_version(other_kind.literal, kind.shape.version))
    ):
        raise ExpressionError(f"bad version literal: {problem}")

    def answer(world: World) -> Any:
        value = run(world)
        return other(world) if isinstance(value, Unknown) and value.kind == "unset" else value

    out = kind if kind.shape.kind != "list" else list_of(kind.items())
    return Kind(out.shape, out.path, out.inner), answer


def _entries(compiler: SyntaxCompiler, name: str, kind: Kind, run: Run) -> tuple[Kind, Run]:
    """The entries of a map as a list: keys, values, or {key, value} objects."""
    out, entries = _entries_of(compiler, name, kind)
    return out, lambda world: entries(world, run(world))


def _entries_of(compiler: SyntaxCompiler, name: str, kind: Kind) -> tuple[Kind, Any]:
    """(kind of the list, function of a world and a map)."""
    if kind.shape.kind != "map":
        raise ExpressionError(f"filter {name!r} needs a map, not {name_of(kind)}")
    compiler.whole(kind)
    value = Kind(kind.shape.item or ANY, extended(kind.path, "**"))
    if name == "keys":
        return list_of(Kind(TEXT)), lambda world, holder: list(plain(holder))
    if name == "values":
        return list_of(value), _values
    entry = Shape("object", {"key": TEXT, "value": value.shape})
    return list_of(Kind(entry, value.path)), lambda world, holder: _pairs(world, holder, entry)


def _values(world: World, holder: Any) -> list[Any]:
    return [world.field(holder, key) for key in plain(holder)]


def _pairs(world: World, holder: Any, entry: Shape) -> list[Any]:
    return [
        Fact({"key": key, "value": value}, entry, f"{holder.path}.{key}")
        for key, value in plain(holder).items()
    ]
