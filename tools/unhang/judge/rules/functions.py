"""The filters and tests that expressions may use. The cost of each is bounded by its input; none
can access Python attributes."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from functools import partial
from operator import eq, ge, gt, itemgetter, le, lt, ne
from string import hexdigits
from typing import Any

from unhang.core.quotes import leading_words
from unhang.judge.rules.values import (
    Fact,
    Undecided,
    Unknown,
    World,
    bounded,
    frozen,
    plain,
    shown,
    truth,
)
from unhang_node.base.versions.compare import compare_versions, holds

Function = Callable[..., Any]


def decided(value: Any, reason: str) -> Undecided:
    """The Undecided for a value that exists but cannot be used."""
    return Undecided(Unknown("unread", path_of(value), "error", reason))


def path_of(value: Any) -> str:
    """The fact path of a value, '' for a computed value."""
    return value.path if isinstance(value, (Fact, Unknown)) else ""


def follow(world: World, item: Any, names: tuple[str, ...]) -> Any:
    """A field of a field of an item."""
    for name in names:
        item = world.field(item, name)
    return item


# ---- tests: (world, value, *arguments) -> bool; raise Undecided


def is_version(world: World, value: Any, other: Any, operator: str = "==", *, order: str) -> bool:
    """The typed comparison; order comes from the fact's schema or version_type."""
    left, right = plain(value), plain(other)
    comparison = compare_versions(left, right, order)
    answer = holds(comparison, operator)
    if answer is None:
        raise decided(value if path_of(value) else other, comparison.reason)
    return answer


def _ordered(compare: Callable[[Any, Any], bool]) -> Function:
    def test(world: World, value: Any, other: Any) -> bool:
        left, right = plain(value), plain(other)
        try:
            return compare(left, right)
        except TypeError:
            raise decided(
                value,
                f"{type(left).__name__} and {type(right).__name__} have no order",
            ) from None

    return test


def _member(world: World, value: Any, holder: Any) -> bool:
    inside = plain(holder)
    wanted = plain(value)
    world.step(len(inside) if hasattr(inside, "__len__") else 1)
    if isinstance(holder, Fact) and isinstance(inside, list):
        world.note(holder.path, inside)
    try:
        return wanted in inside
    except TypeError:
        raise decided(value, "membership needs a list, a map or a text") from None


def _over(fold: Callable[..., Any], of: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda world, values: fold(of(one) for one in world.items(values))


def _text_test(compare: Callable[[str, str], bool]) -> Function:
    return lambda world, value, other: compare(str(plain(value)), str(plain(other)))


def _whole(world: World, value: Any) -> bool:
    """A text that is a whole number, as strtoll reads it: decimal, or hexadecimal after 0x."""
    digits = str(plain(value)).strip().removeprefix("-").removeprefix("+")
    return len(digits) <= 20 and (
        digits.isdecimal()
        or (
            digits[:2].lower() == "0x"
            and digits[2:] != ""
            and all(one in hexdigits for one in digits[2:])
        )
    )


TESTS: dict[str, Function] = {
    "==": _ordered(eq),
    "!=": _ordered(ne),
    "<": _ordered(lt),
    "<=": _ordered(le),
    ">": _ordered(gt),
    ">=": _ordered(ge),
    "in": _member,
    "contains": lambda world, holder, value: _member(world, value, holder),
    "startswith": _text_test(str.startswith),
    "endswith": _text_test(str.endswith),
    "like": _text_test(lambda text, pattern: fnmatch.fnmatchcase(text[:4096], pattern)),
    "covers": lambda world, value, name: any(
        fnmatch.fnmatchcase(str(plain(name)), one) for one in str(plain(value))[:4096].split()[:64]
    ),
    "true": lambda world, value: plain(value) is True,
    "false": lambda world, value: plain(value) is False,
    "whole": _whole,
    "all": _over(all, truth),
    "any": _over(any, truth),
    "subset": lambda world, value, other: all(
        one in plain(other) for one in plain(world.items(value))
    ),
    "meets": lambda world, value, other: (
        not (wanted := plain(world.items(value)))
        or any(one in wanted for one in plain(world.items(other)))
    ),
}
TEST_NAMES = {
    "eq": "==", "equalto": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "lteq": "<=", "gteq": ">=",
}  # fmt: skip
# every other test takes one argument
ARITY = dict.fromkeys(("true", "false", "all", "any", "whole"), 0)


# ---- filters on lists: (world, value, *arguments) -> value


def _unique(world: World, values: Any) -> list[Any]:
    seen: dict[Any, Any] = {}
    for one in world.items(values):
        seen.setdefault(frozen(plain(one)), one)
    return list(seen.values())


def _in_order(world: World, values: Any) -> list[Any]:
    items = world.items(values)
    return sorted(items, key=lambda one: (str(type(plain(one)).__name__ == "str"), plain(one)))


def _one_of(choose: Callable[[Any], Any]) -> Function:
    def filter_(world: World, values: Any) -> Any:
        items = world.items(values)
        if not items:
            return Unknown("absent", path_of(values), "absent", "the list is empty")
        return choose(items)

    return filter_


def _length(world: World, value: Any) -> int:
    inside = (
        value.value
        if isinstance(value, Fact)
        else plain(value)
        if isinstance(value, Unknown)
        else value
    )
    if isinstance(value, Fact) and not isinstance(inside, str):
        world.note(f"{value.path} | length", len(inside))
    return len(inside)


def _flatten(world: World, values: Any) -> list[Any]:
    return [inner for one in world.items(values) for inner in world.items(one)]


def _known_items(world: World, values: Any) -> list[Any]:
    return [one for one in world.items(values) if not isinstance(one, Unknown)]


def _sieve(is_wanted: bool) -> Function:
    def filter_(world: World, values: Any, other: Any) -> list[Any]:
        keys = {frozen(plain(one)) for one in world.items(other)}
        return [one for one in _unique(world, values) if (frozen(plain(one)) in keys) == is_wanted]

    return filter_


def _union(world: World, values: Any, other: Any) -> list[Any]:
    return _unique(world, [*world.items(values), *world.items(other)])


def _join(world: World, values: Any, separator: Any = ", ") -> str:
    return bounded(str(plain(separator)).join(shown(plain(one)) for one in world.items(values)))


# ---- filters on scalars


def _number(convert: Callable[[Any], Any]) -> Function:
    def filter_(world: World, value: Any) -> Any:
        inside = plain(value)
        try:
            return convert(inside[:64] if isinstance(inside, str) else inside)
        except (ValueError, TypeError, OverflowError):
            raise decided(value, f"{shown(inside)[:60]!r} is not a number") from None

    return filter_


def _version_part(world: World, value: Any, place: Any = 0) -> int:
    fields = str(plain(value)).lstrip("v").split("+")[0].replace("-", ".").split(".")
    wanted = int(plain(place))
    if 0 <= wanted < len(fields) and fields[wanted].isdecimal():
        return int(fields[wanted][:9])
    raise decided(value, f"{shown(plain(value))[:60]!r} has no number in field {wanted}")


def _expand_names(world: World, value: Any, names: Any) -> list[str]:
    wanted, known = str(plain(value))[:4096], [str(one) for one in plain(world.items(names))]
    world.step(len(known) * (1 + wanted.count(",")))
    return names_chosen(wanted, known)


def names_chosen(wanted: str, known: list[str]) -> list[str]:
    """The names that NCCL takes for a list such as "ib,eth0:1", "=eth0" or "^docker,lo": prefixes,
    exact after =, all others after ^ (src/misc/socket.cc)."""
    others = wanted.startswith("^")
    wanted = wanted.removeprefix("^")
    exact = wanted.startswith("=")
    tokens = [token.split(":")[0] for token in wanted.removeprefix("=").split(",") if token]
    return [
        name
        for name in known
        if any(name == token if exact else name.startswith(token) for token in tokens) != others
    ]


def _text(change: Callable[..., str]) -> Function:
    return lambda world, value, *arguments: bounded(
        change(str(plain(value)), *(plain(one) for one in arguments))
    )


FILTERS: dict[str, Function] = {
    "length": _length,
    "list": World.items,
    "unique": _unique,
    "sort": _in_order,
    "first": _one_of(itemgetter(0)),
    "last": _one_of(itemgetter(-1)),
    "min": _one_of(partial(min, key=plain)),
    "max": _one_of(partial(max, key=plain)),
    "sum": _over(sum, plain),
    "flatten": _flatten,
    "known": _known_items,
    "intersect": _sieve(True),
    "difference": _sieve(False),
    "union": _union,
    "join": _join,
    "int": _number(int),
    "abs": _number(abs),
    "round": lambda world, value, digits=0: round(plain(value), int(plain(digits)) or None),
    "gib": lambda world, value: f"{plain(value) / (1 << 30):.4g} GiB",
    "lower": _text(str.lower),
    "upper": _text(str.upper),
    "trim": _text(str.strip),
    "string": _text(str),
    "truncate": _text(
        lambda text, length=80: (
            text if len(text) <= int(length) else leading_words(text, int(length)) + "…"
        )
    ),
    "split": lambda world, value, separator=None: str(plain(value)).split(
        plain(separator) if separator is not None else None
    )[:4096],
    "version_part": _version_part,
    "expand_names": _expand_names,
}
