"""The closures that compiled expressions are made of: items, keys, three-valued logic, numbers."""

from __future__ import annotations

from collections.abc import Callable
from operator import add, floordiv, mod, mul, sub, truediv
from typing import Any

from unhang.judge.rules.values import Undecided, Unknown, World, plain, printable, shown, truth

Run = Callable[[World], Any]


def as_text(run: Run) -> Run:
    """A value as a template prints it; an unknown value is printed as such."""

    def text(world: World) -> str:
        try:
            return printable(shown(run(world)))
        except Undecided as problem:
            return f"not known ({printable(problem.causes[0].reason)})"

    return text


def item_at(run: Run, position: Run) -> Run:
    """list[number]."""

    def item(world: World) -> Any:
        holder, place = run(world), plain(position(world))
        items = world.items(holder)
        if isinstance(place, int) and -len(items) <= place < len(items):
            return items[place]
        return Unknown(
            "absent",
            getattr(holder, "path", ""),
            "absent",
            f"the list has {len(items)} items, no item {place}",
        )

    return item


def entry_at(run: Run, key: Run) -> Run:
    """map[key]."""
    return lambda world: world.field(run(world), str(plain(key(world))))


def _outcome(run: Run, world: World) -> bool | tuple[Unknown, ...]:
    """The value, or the facts that it lacks. Never the exception itself: its traceback refers to
    the frame that would store it, and so to the node's facts."""
    try:
        return truth(run(world))
    except Undecided as problem:
        return problem.causes


def both(left: Run, right: Run) -> Run:
    """left and right."""
    return lambda world: _joined(world, left, right, False)


def either(left: Run, right: Run) -> Run:
    """left or right."""
    return lambda world: _joined(world, left, right, True)


def _joined(world: World, left: Run, right: Run, deciding: bool) -> bool:
    """and (deciding False) and or (deciding True). An unknown left side does not matter if the
    right side decides alone."""
    world.step()
    first = _outcome(left, world)
    if first is deciding:
        return deciding
    second = _outcome(right, world)
    if second is deciding:
        return deciding
    lacking = [cause for one in (first, second) if not isinstance(one, bool) for cause in one]
    if lacking:
        raise Undecided(*lacking)
    return not deciding


def calculated(operator: str, left: Run, right: Run) -> Run:
    """left + right, for numbers only."""

    def number(world: World) -> Any:
        world.step()
        one, other = plain(left(world)), plain(right(world))
        for value in (one, other):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"{operator} needs numbers")
        return _OPERATIONS[operator](one, other)

    return number


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": truediv,
    "//": floordiv,
    "%": mod,
}
