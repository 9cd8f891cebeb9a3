"""Comparisons, tests and filters of expressions: what each accepts, told while compiling, and the closures that run them."""

from __future__ import annotations

from typing import Any

from jinja2 import nodes

from unhang.judge.expression import Compiler, ExpressionError, Kind, Run, _name, list_of
from unhang.judge.functions import ARITY, FILTERS, TEST_NAMES, TESTS, follow, is_version
from unhang.judge.shapes import ANY, FLAG, NUMBER, TEXT, Shape, nearest
from unhang.judge.values import Unknown, World, plain, truth
from unhang.judge.versions import OPERATORS, ORDERS, check_version

_SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "lteq": "<=", "gt": ">", "gteq": ">=", "in": "in", "notin": "in"}
_KNOWN = {"known", "unknown"}


def comparison(compiler: Compiler, node: nodes.Compare) -> tuple[Kind, Run]:
    """a < b, also chained; == and in."""
    left_kind, left = compiler.visit(node.expr)
    links = []
    for operand in node.ops:
        right_kind, right = compiler.visit(operand.expr)
        _check_comparison(compiler, _SYMBOLS[operand.op], left_kind, right_kind)
        links.append((TESTS[_SYMBOLS[operand.op]], left, right, operand.op == "notin"))
        left_kind, left = right_kind, right

    def run(world: World) -> bool:
        world.step()
        return all(check(world, one(world), other(world)) != negated for check, one, other, negated in links)

    return Kind(FLAG), run


def _check_comparison(compiler: Compiler, symbol: str, left: Kind, right: Kind) -> None:
    compiler.need_value(left, symbol)
    if symbol == "in":
        compiler.need_value(Kind(ANY), symbol)
        _check_membership(compiler, left, right)
        return
    compiler.need_value(right, symbol)
    kinds = {left.shape.kind, right.shape.kind} - {"any"}
    if len(kinds) > 1:
        raise ExpressionError(f"{_name(left)} and {_name(right)} are never {symbol} each other: they are of different kinds")
    if symbol in ("<", "<=", ">", ">=") and (left.shape.version or right.shape.version):
        raise ExpressionError(f"versions have an order of their own: write 'is version(…, {symbol!r})' instead of {symbol}")
    for one, other in ((left, right), (right, left)):
        _check_value(one, other.literal)


def _check_value(kind: Kind, literal: Any) -> None:
    """An enumeration never has a value that is spelt wrong."""
    if kind.shape.values and isinstance(literal, str) and literal not in kind.shape.values:
        allowed = ", ".join(str(value) for value in kind.shape.values)
        raise ExpressionError(f"{'.'.join(kind.path or ())} is never {literal!r}{nearest(literal, kind.shape.values)}; it is one of {allowed}")


def _check_membership(compiler: Compiler, member: Kind, holder: Kind) -> None:
    if holder.shape.kind == "map":
        compiler.whole(holder)
        return
    if holder.shape.kind == "list":
        compiler.need_value(holder, "in")
        inside = holder.items().shape.kind
        if "any" not in (inside, member.shape.kind) and inside != member.shape.kind:
            raise ExpressionError(f"a list of {inside} never holds {_name(member)}")
        for literal in holder.literal if isinstance(holder.literal, list) else ():
            _check_value(member, literal)
        _check_value(holder.items(), member.literal)
        return
    if holder.shape.kind not in ("text", "any"):
        raise ExpressionError(f"'in' needs a list, a map or a text, not {_name(holder)}")
    if member.shape.kind not in ("text", "any"):
        raise ExpressionError(f"'in' a text needs a text, not {_name(member)}")


# ---- tests


def test(compiler: Compiler, node: nodes.Test) -> tuple[Kind, Run]:
    """value is NAME(arguments)."""
    kind, run = compiler.visit(node.node)
    arguments = [compiler.visit(one) for one in node.args or ()]
    check = bound_test(compiler, node.name, kind, arguments, _keywords(node))

    def answer(world: World) -> bool:
        world.step()
        return check(world, run(world))

    return Kind(FLAG), answer


def _keywords(node: nodes.Test | nodes.Filter) -> dict[str, Any]:
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        raise ExpressionError("* and ** arguments not allowed")
    found = {}
    for one in node.kwargs or ():
        if not isinstance(one.value, nodes.Const):
            raise ExpressionError(f"{one.key}= needs a literal")
        found[one.key] = one.value.value
    return found


def bound_test(compiler: Compiler, name: str, kind: Kind, arguments: list[tuple[Kind, Run]], keywords: dict[str, Any]) -> Any:
    """A test with its arguments, checked: (world, value) -> bool. Raises ExpressionError."""
    name = TEST_NAMES.get(name, name)
    if name in _KNOWN:
        wanted = name == "known"
        return lambda world, value: isinstance(value, Unknown) != wanted
    if name == "version":
        return _version(kind, arguments, keywords)
    if name not in TESTS:
        hint = ": ask 'is known'" if name in ("defined", "undefined", "none") else nearest(name, [*TESTS, *TEST_NAMES, *_KNOWN, "version"])
        raise ExpressionError(f"no test {name!r}{hint}")
    if keywords:
        raise ExpressionError(f"test {name!r} takes no {next(iter(keywords))}=")
    if len(arguments) != ARITY.get(name, 1):
        raise ExpressionError(f"test {name!r} takes {ARITY.get(name, 1)} argument(s), not {len(arguments)}")
    _check_test(compiler, name, kind, [one for one, _ in arguments])
    function = TESTS[name]
    runs = [run for _, run in arguments]
    return lambda world, value: function(world, value, *(run(world) for run in runs))


def _check_test(compiler: Compiler, name: str, kind: Kind, arguments: list[Kind]) -> None:
    if name in ("==", "!=", "<", "<=", ">", ">=", "in"):
        _check_comparison(compiler, name, kind, arguments[0])
    elif name == "contains":
        _check_comparison(compiler, "in", arguments[0], kind)
    elif name in ("all", "any", "subset", "superset"):
        for one in (kind, *arguments):
            if one.shape.kind != "list":
                raise ExpressionError(f"test {name!r} needs a list, not {_name(one)}")
            compiler.need_value(one, name)
    elif name in ("true", "false"):
        if kind.shape.kind not in ("flag", "any"):
            raise ExpressionError(f"{_name(kind)} is neither true nor false")
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
        raise ExpressionError(f"test 'version': {operator!r} is no operator; allowed are {', '.join(sorted(OPERATORS))}")
    other_kind, other = arguments[0]
    orders = {one.shape.version for one in (kind, other_kind) if one.shape.version}
    order = keywords.get("version_type") or (orders.pop() if len(orders) == 1 else None)
    if len(orders) > 1:
        raise ExpressionError(f"versions of two types ({', '.join(sorted(str(one) for one in orders))}) have no common order: give version_type=")
    if order is None:
        raise ExpressionError(f"this fact has no version type: give version_type=, one of {', '.join(ORDERS)}")
    if order not in ORDERS:
        raise ExpressionError(f"version_type={order!r} is unknown{nearest(order, ORDERS)}; allowed are {', '.join(ORDERS)}")
    for one in (kind, other_kind):
        if one.shape.kind not in ("text", "any") and one.literal is None:
            raise ExpressionError(f"test 'version' needs texts, not {_name(one)}")
        if one.literal is not None and (problem := check_version(one.literal, order)):
            raise ExpressionError(f"bad version literal: {problem}")
    return lambda world, value: is_version(world, value, other(world), operator, order=order)


# ---- filters

_KEEP = {"list", "unique", "sort", "known", "intersect", "difference"}
_TO_NUMBER = {"length", "int", "float", "abs", "round", "sum", "version_part"}
_TO_TEXT = {"join", "gib", "lower", "upper", "trim", "string", "basename", "dirname", "truncate"}
_ON_LISTS = {"unique", "sort", "first", "last", "min", "max", "sum", "flatten", "known", "intersect", "difference", "union", "join", "list"}
_ON_VALUES = {"unique", "sort", "min", "max", "sum", "intersect", "difference", "union", "join"}
_MOST = {"join": 1, "round": 1, "truncate": 1, "split": 1, "version_part": 1, "intersect": 1, "difference": 1, "union": 1}
_NEEDED = {"intersect", "difference", "union"}
_ALIASES = {"count": "length", "min_": "min"}
_SPECIAL = ("selectattr", "rejectattr", "select", "reject", "map", "default", "d", "items", "keys", "values")


def filtered(compiler: Compiler, node: nodes.Filter) -> tuple[Kind, Run]:
    """value | NAME(arguments)."""
    if node.node is None:
        raise ExpressionError("filter blocks are not allowed")
    kind, run = compiler.visit(node.node)
    arguments = [compiler.visit(one) for one in node.args or ()]
    keywords = _keywords(node)
    name = _ALIASES.get(node.name, node.name)
    if name in ("selectattr", "rejectattr", "select", "reject"):
        return _selected(compiler, name, kind, run, arguments, keywords)
    if name == "map":
        return _mapped(compiler, kind, run, arguments, keywords)
    if name in ("default", "d"):
        return _default(compiler, kind, run, arguments, keywords)
    if name in ("items", "keys", "values"):
        return _entries(compiler, name, kind, run)
    if keywords:
        raise ExpressionError(f"filter {name!r} takes no {next(iter(keywords))}=")
    out, function = bound_filter(compiler, name, kind, [one for one, _ in arguments])
    runs = [one for _, one in arguments]

    def answer(world: World) -> Any:
        world.step()
        return function(world, run(world), *(one(world) for one in runs))

    return out, answer


def bound_filter(compiler: Compiler, name: str, kind: Kind, arguments: list[Kind]) -> tuple[Kind, Any]:
    """(kind of the result, function). Raises ExpressionError."""
    if name not in FILTERS:
        raise ExpressionError(f"no filter {name!r}{nearest(name, [*FILTERS, *_SPECIAL])}")
    if len(arguments) > _MOST.get(name, 0) or (name in _NEEDED and not arguments):
        raise ExpressionError(f"filter {name!r} takes {_MOST.get(name, 0)} argument(s), not {len(arguments)}")
    shape = kind.shape.kind
    if name in _ON_LISTS and shape != "list":
        raise ExpressionError(f"filter {name!r} needs a list, not {_name(kind)}")
    if name == "length" and shape not in ("list", "map", "text", "any"):
        raise ExpressionError(f"{_name(kind)} has no length")
    if name not in _ON_LISTS and name != "length" and shape in ("list", "map", "object"):
        raise ExpressionError(f"filter {name!r} needs a single value, not {_name(kind)}")
    if name in _ON_VALUES:
        compiler.need_value(kind, name)
    for one in arguments:
        compiler.need_value(one, name)
    compiler.whole(kind)
    return _result(compiler, name, kind, arguments), FILTERS[name]


def _result(compiler: Compiler, name: str, kind: Kind, arguments: list[Kind]) -> Kind:
    if name in _KEEP:
        return list_of(kind.items())
    if name == "union":
        same = kind.items().shape.kind == arguments[0].items().shape.kind
        return list_of(Kind(Shape(kind.items().shape.kind) if same else ANY))
    if name in ("first", "last", "min", "max"):
        return kind.items()
    if name == "flatten":
        if kind.items().shape.kind != "list":
            raise ExpressionError(f"filter 'flatten' needs a list of lists, not of {kind.items().shape.kind}")
        return list_of(kind.items().items())
    if name == "split":
        return list_of(Kind(TEXT))
    return Kind(NUMBER) if name in _TO_NUMBER else Kind(TEXT)


def _need_list(name: str, kind: Kind) -> Kind:
    if kind.shape.kind != "list":
        raise ExpressionError(f"filter {name!r} needs a list, not {_name(kind)}")
    return kind.items()


def _selected(compiler: Compiler, name: str, kind: Kind, run: Run, arguments: list[tuple[Kind, Run]], keywords: dict) -> tuple[Kind, Run]:
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
            raise ExpressionError(f"{name} without a test needs a yes/no field, not {_name(inside)}")
        check = lambda world, value: truth(value)  # noqa: E731
    wanted = name.startswith("select")

    def answer(world: World) -> list[Any]:
        return _choose(world, world.items(run(world)), lambda one: check(world, follow(world, one, names)) == wanted)

    return list_of(item), answer


def _choose(world: World, items: list[Any], is_wanted: Any) -> list[Any]:
    """The wanted items. When some are, only what was read of them is evidence."""
    before = world.reads
    chosen, seen, of_chosen = [], [], []
    for one in items:
        world.reads = None if before is None else []
        try:
            wanted = is_wanted(one)
        finally:
            read, world.reads = world.reads or [], before
        seen += read
        if wanted:
            chosen.append(one)
            of_chosen += read
    if before is not None:
        before.extend(of_chosen if chosen else seen)
    return chosen


def _mapped(compiler: Compiler, kind: Kind, run: Run, arguments: list[tuple[Kind, Run]], keywords: dict) -> tuple[Kind, Run]:
    """map(attribute='a.b') or map('filter', …)."""
    item = _need_list("map", kind)
    if set(keywords) == {"attribute"} and isinstance(keywords["attribute"], str) and not arguments:
        inside, names = compiler.follow(item, keywords["attribute"])
        return list_of(inside), lambda world: [follow(world, one, names) for one in world.items(run(world))]
    if keywords or not arguments or not isinstance(arguments[0][0].literal, str):
        raise ExpressionError("map is written map(attribute='field') or map('filter')")
    out, function = bound_filter(compiler, arguments[0][0].literal, item, [one for one, _ in arguments[1:]])
    runs = [one for _, one in arguments[1:]]
    return list_of(out), lambda world: [function(world, one, *(each(world) for each in runs)) for one in world.items(run(world))]


def _default(compiler: Compiler, kind: Kind, run: Run, arguments: list[tuple[Kind, Run]], keywords: dict) -> tuple[Kind, Run]:
    """policy.key | default(5): only for what the policy does not set. A fact that was not read has no default."""
    if len(arguments) != 1 or keywords:
        raise ExpressionError("default takes one argument")
    if kind.path is None or kind.path[0] != "policy":
        raise ExpressionError("default is for policy keys alone: a fact that was not read must stay unknown")
    other_kind, other = arguments[0]
    if "any" not in (kind.shape.kind, other_kind.shape.kind) and kind.shape.kind != other_kind.shape.kind:
        raise ExpressionError(f"the default of {'.'.join(kind.path)} must be {_name(kind)}, not {_name(other_kind)}")
    if kind.shape.kind == "object":
        raise ExpressionError("default needs a value, not an object")
    compiler.need_value(kind, "default")
    if kind.shape.version and other_kind.literal is not None and (problem := check_version(other_kind.literal, kind.shape.version)):
        raise ExpressionError(f"bad version literal: {problem}")

    def answer(world: World) -> Any:
        value = run(world)
        return other(world) if isinstance(value, Unknown) and value.kind == "unset" else value

    out = kind if kind.shape.kind != "list" else list_of(kind.items())
    return Kind(out.shape, out.path, out.inner), answer


def _entries(compiler: Compiler, name: str, kind: Kind, run: Run) -> tuple[Kind, Run]:
    """The entries of a map as a list: keys, values, or {key, value} objects."""
    if kind.shape.kind != "map":
        raise ExpressionError(f"filter {name!r} needs a map, not {_name(kind)}")
    compiler.whole(kind)
    value = Kind(kind.shape.item or ANY, None if kind.path is None else (*kind.path, "**"))
    if name == "keys":
        return list_of(Kind(TEXT)), lambda world: list(plain(run(world)))
    if name == "values":
        return list_of(value), lambda world: _values(world, run(world))
    entry = Shape("object", {"key": TEXT, "value": value.shape})
    return list_of(Kind(entry, value.path)), lambda world: _pairs(world, run(world), entry)


def _values(world: World, holder: Any) -> list[Any]:
    return [world.field(holder, key) for key in plain(holder)]


def _pairs(world: World, holder: Any, entry: Shape) -> list[Any]:
    from unhang.judge.values import Fact

    return [Fact({"key": key, "value": value}, entry, f"{holder.path}.{key}") for key, value in plain(holder).items()]
