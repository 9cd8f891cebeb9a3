"""What the quick forms of rules look at, and how they say that they cannot tell."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unhang.judge.values import RuleStopped, Undecided

MOST_ITEMS = 64  # a longer list is for judging in full, which counts its steps
Quick = Callable[[Any], Any]  # what is seen -> value, never None
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "lteq": operator.le, "gt": operator.gt, "gteq": operator.ge,
}  # fmt: skip

NO_ANSWER = (AttributeError, TypeError, ValueError, LookupError, ArithmeticError, Undecided, RuleStopped)


class NotQuick(Exception):
    """An expression that has no quick form."""


class Ask(ValueError):
    """Something that only judging in full can answer."""


class NoValue(Exception):
    """There is nothing at a path."""


class Absent(Exception):
    """A condition that cannot be decided, because the node has no such thing: the rule is skipped unless the rest of the expression decides."""


WhyNull = Callable[[str], str]  # path of a null -> Unknown.kind
Place = tuple[bool, tuple[str, ...]]  # of the item or of the node, names


@dataclass(frozen=True)
class NodeView:
    """What the functions look at. item_path: called when it is needed."""

    sections: Any
    item: Any
    item_path: Callable[[], str]
    why: WhyNull


def known(value: Any) -> Any:
    """The value of an item's field. Raises Ask for a null."""
    if value is None:
        raise Ask
    return value


def outcome(run: Quick, seen: NodeView) -> bool | None:
    """True, False, or None where the node has no such thing."""
    try:
        return bool(run(seen))
    except Absent:
        return None


def null_is_absence(places: list[Place], seen: NodeView) -> None:
    """Raises Absent when every null at these places means that the node has no such thing, so that whichever is met first makes a skip; else Ask."""
    for of_item, names in places:
        holder, path = (seen.item, seen.item_path()) if of_item else (seen.sections, "")
        for name in names:
            holder, path = getattr(holder, name), f"{path}.{name}" if path else name
            if holder is None:
                if (not of_item and path == names[0]) or seen.why(path) == "unread":
                    raise Ask
                break
    raise Absent


def whole(values: list[Any]) -> list[Any]:
    """A list without nulls. Raises Ask."""
    if None in values:
        raise Ask
    return values


def number(value: Any) -> Any:
    """A number that is no yes or no. Raises Ask."""
    if type(value) not in (int, float):
        raise Ask
    return value


def flattened(lists: list[Any]) -> list[Any]:
    """The items of lists in a list. Raises Ask for a null, and for more of them than are gone through quickly."""
    values = [value for one in whole(lists) for value in whole(one)]
    if len(values) > MOST_ITEMS:
        raise Ask
    return values
