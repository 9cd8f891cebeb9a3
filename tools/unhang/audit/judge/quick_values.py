"""The input of quick forms of rules, and the exceptions with which they leave a decision to the full judge."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unhang.audit.judge.values import RuleStopped, Undecided

MOST_ITEMS = 64  # a longer list is left to the full judge, which counts its steps
Quick = Callable[[Any], Any]  # view of a node or an item -> value, never None
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "lteq": operator.le, "gt": operator.gt, "gteq": operator.ge,
}  # fmt: skip

NO_ANSWER = (AttributeError, TypeError, ValueError, LookupError, ArithmeticError, Undecided, RuleStopped)


class NotQuick(Exception):
    """The expression has no quick form."""


class Ask(ValueError):
    """Only the full judge can decide."""


class NoValue(Exception):
    """A path has no value."""


class Absent(Exception):
    """A condition is undecided because the node has no such thing: the rule is skipped unless the rest of the expression decides."""


WhyNull = Callable[[str], str]  # path of a null -> Unknown.kind
Place = tuple[bool, tuple[str, ...]]  # place: (whether of the item or of the node, names)


@dataclass(frozen=True)
class NodeView:
    """The input of the functions. item_path: called when it is needed."""

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
    """True, False, or None if the node has no such thing."""
    try:
        return bool(run(seen))
    except Absent:
        return None


def null_is_absence(places: list[Place], seen: NodeView) -> None:
    """Raises Absent if every null at these places means that the node has no such thing, because then any of them leads to a skip; else Ask."""
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
    """A number that is not a boolean. Raises Ask."""
    if type(value) not in (int, float):
        raise Ask
    return value


def flattened(lists: list[Any]) -> list[Any]:
    """The items of lists in a list. Raises Ask for a null, and for more than MOST_ITEMS items."""
    values = [value for one in whole(lists) for value in whole(one)]
    if len(values) > MOST_ITEMS:
        raise Ask
    return values
