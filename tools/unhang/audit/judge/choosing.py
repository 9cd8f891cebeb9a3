"""selectattr and rejectattr: the items of a list that a test chooses, with the facts that were read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.audit.judge.functions import TEST_NAMES
from unhang.audit.judge.syntax import Kind, Run
from unhang.audit.judge.values import Fact, World, plain


def _starting(values: Sequence[Any], other: Any, wanted: bool) -> list[bool]:
    start = str(other)
    return [str(value).startswith(start) is wanted for value in values]


SHORT: dict[str, Callable[[Sequence[Any], Any, bool], list[bool]]] = {
    "==": lambda values, other, wanted: [(value == other) is wanted for value in values],
    "in": lambda values, other, wanted: [(value in other) is wanted for value in values],
    "startswith": _starting,
}
"""Test -> whether it returns `wanted` for each value."""


@dataclass(frozen=True)
class Plain:
    """selectattr('field', TEST, other) of a field with one value, where the test is one of SHORT: the most common choice in rules. The value to compare with
    is computed once for all items of the list. Steps and evidence are the same as if it were computed for each.
    """

    field: str
    other: Run
    test: str

    def choose(self, world: World, items: Sequence[Any], wanted: bool) -> list[Any] | None:
        """The items for which the test returns `wanted`; None if each item must be tested alone, because a value is null or some facts are refused."""
        values = self._values(items) if world.gives_every_fact else None
        if values is None:
            return None
        before, begun = world.reads, world.budget[0]
        world.reads = None if before is None else []
        try:
            world.step()
            given = self.other(world)
            if self.test == "in" and isinstance(given, Fact):  # a list in the facts is one piece of evidence
                world.budget[0] = begun
                return None
            other = plain(given)
            world.step(len(other) if self.test == "in" else 0)
            read_beside = world.reads or []
        finally:
            world.reads = before
        world.step((len(items) - 1) * (begun - world.budget[0]))
        holds = SHORT[self.test](values, other, wanted)
        if before is not None:
            self._note(before, items, values, holds if True in holds else [True] * len(items), read_beside)
        return [one for one, chosen in zip(items, holds, strict=True) if chosen]

    def _values(self, items: Sequence[Any]) -> list[Any] | None:
        field, found = self.field, []
        for one in items:
            if type(one) is not Fact:
                return None
            holder = one.value
            value = holder.get(field) if isinstance(holder, dict) else getattr(holder, field)
            if value is None:
                return None
            found.append(value)
        return found or None

    def _note(self, reads: list[tuple[str, Any]], items: Sequence[Any], values: list[Any], noted: list[bool], beside: list[tuple[str, Any]]) -> None:
        """Evidence of the items that count; the value that they were compared with is noted once, after the first item."""
        rows = [(f"{one.path}.{self.field}", value) for one, value, counts in zip(items, values, noted, strict=True) if counts]
        reads += [*rows[:1], *beside, *rows[1:]]


def plain_choice(names: Sequence[str], inside: Kind, item: Kind, test: str, arguments: Sequence[tuple[Kind, Run]]) -> Plain | None:
    """The short form of a choice, None if it has none. names: the field's path in an item; inside: the field's kind."""
    test = TEST_NAMES.get(test, test)
    if len(names) != 1 or len(arguments) != 1 or item.shape.kind != "object" or not inside.shape.is_scalar:
        return None
    kind, run = arguments[0]
    if test == "in":
        return Plain(names[0], run, test) if kind.shape.kind == "list" else None
    return Plain(names[0], run, test) if test in SHORT else None


def choose(world: World, items: Sequence[Any], is_wanted: Callable[[Any], bool]) -> list[Any]:
    """The wanted items. If there are any, only the facts that were read of them are evidence."""
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
