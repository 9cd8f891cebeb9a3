"""Values of expressions: facts with their paths, and unknown values, which decide nothing."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

from unhang.core.schemas.shapes import Shape

LONGEST_TEXT = 65536
# elementary steps that one rule may take on one node: one pass over the largest list, 8,128 pairs,
# takes 16,000
STEPS = 500_000


@dataclass(frozen=True)
class Unknown:
    """A fact without a value.

    kind: unread (the verdict becomes unknown), absent (the node has no such thing: skip), unset
    (the policy says nothing: skip).
    status: as in probe.unread; reason: one line.
    """

    kind: str
    path: str
    status: str
    reason: str

    def below(self, name: str) -> Unknown:
        """The Unknown for a field of this unknown value."""
        return Unknown(self.kind, f"{self.path}.{name}", self.status, self.reason)


class Undecided(Exception):
    """An expression has read an unknown value. causes: the missing values, at least one."""

    def __init__(self, *causes: Unknown):
        super().__init__(*causes)
        self.causes = causes

    @property
    def is_skip(self) -> bool:
        """True if the rule does not apply, False if it lacks a fact."""
        return any(cause.kind != "unread" for cause in self.causes)


class RuleStopped(Exception):
    """An evaluation took more steps, or made a longer text, than any sensible rule needs."""


class Fact:
    """A value with its shape and its path in the document, such as
    gpus.devices[3].pcie.width_now."""

    __slots__ = ("path", "shape", "value")

    def __init__(self, value: Any, shape: Shape, path: str):
        self.value = value
        self.shape = shape
        self.path = path


class World:
    """The values that an evaluation can read, and the facts that it has read so far.

    roots: name -> Fact, Unknown or plain value. why_null(path): the Unknown for a null at this
    path.
    """

    __slots__ = ("budget", "reads", "roots", "why_null")

    def __init__(
        self,
        roots: dict[str, Any],
        why_null: Callable[[str], Unknown],
        budget: list[int] | None = None,
    ):
        self.roots = roots
        self.why_null = why_null
        self.reads: list[tuple[str, Any]] | None = None
        self.budget = [STEPS] if budget is None else budget

    def begin(self) -> None:
        """Starts the count of steps for one rule."""
        self.budget[0] = STEPS

    def with_item(self, item: Any) -> World:
        """The same world with `item` bound; all items of a rule share its steps."""
        roots = copy(self.roots)
        roots["item"] = item
        return World(roots, self.why_null, self.budget)

    def step(self, count: int = 1) -> None:
        """Counts steps. Raises RuleStopped."""
        self.budget[0] -= count
        if self.budget[0] < 0:
            raise RuleStopped("it takes too many steps")

    def note(self, path: str, value: Any) -> None:
        """Records a read fact, for the evidence."""
        if self.reads is not None:
            self.reads.append((path, value))

    def field(self, parent: Any, name: str) -> Any:
        """A field of an object or an entry of a map: Fact, or Unknown if it is null or missing."""
        self.budget[0] -= 1  # as step(): this method is most of the time of judging
        if self.budget[0] < 0:
            raise RuleStopped("it takes too many steps")
        if isinstance(parent, Unknown):
            return parent.below(name)
        path = f"{parent.path}.{name}"
        holder = parent.value
        value = holder.get(name) if isinstance(holder, dict) else getattr(holder, name)
        if parent.shape.kind == "map":
            if value is None and name not in holder:
                return Unknown("absent", path, "absent", f"{parent.path} has no {name[:80]}")
            shape = parent.shape.item
        else:
            shape = parent.shape.fields[name]
        return self.wrap(value, shape, path)

    def wrap(self, value: Any, shape: Shape | None, path: str) -> Any:
        """A value as Fact, null as Unknown."""
        if value is None:
            return self.why_null(path)
        assert shape is not None
        if shape.is_scalar:
            self.note(path, value)
        return Fact(value, shape, path)

    def items(self, holder: Any) -> list[Any]:
        """The items of a list: Facts, and Unknown for nulls; plain lists unchanged. Raises
        Undecided."""
        if isinstance(holder, Unknown):
            raise Undecided(holder)
        if not isinstance(holder, Fact):
            self.step(len(holder))
            return list(holder)
        self.step(len(holder.value))
        item = holder.shape.item
        if item is not None and item.is_scalar:
            self.note(holder.path, list(holder.value))
            return [
                self.why_null(f"{holder.path}[{place}]")
                if value is None
                else Fact(value, item, holder.path)
                for place, value in enumerate(holder.value)
            ]
        return [
            self.wrap(value, item, f"{holder.path}[{place}]")
            for place, value in enumerate(holder.value)
        ]


def plain(value: Any) -> Any:
    """The plain value: facts unwrapped, also in lists. Raises Undecided for an unknown value."""
    if isinstance(value, Unknown):
        raise Undecided(value)
    if isinstance(value, Fact):
        return value.value
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value


def frozen(value: Any) -> Any:
    """A key that is equal exactly when the values are; the order of a list counts, 1 and true
    differ."""
    if isinstance(value, list):
        return tuple(frozen(one) for one in value)
    if isinstance(value, dict):
        return tuple(sorted((key, frozen(one)) for key, one in value.items()))
    return (type(value).__name__, value) if isinstance(value, bool) else value


def truth(value: Any) -> bool:
    """The value as True or False. Raises Undecided."""
    return bool(plain(value))


def shown(value: Any) -> str:
    """A value as text for people: one line, control characters escaped, limited in length."""
    if isinstance(value, Unknown):
        return f"not known ({value.reason})"
    if isinstance(value, Fact):
        value = value.value
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, (list, tuple)):
        return bounded(", ".join(shown(one) for one in value))
    if isinstance(value, dict):
        return bounded(", ".join(f"{shown(key)}={shown(one)}" for key, one in value.items()))
    return bounded(str(value))


def bounded(text: str) -> str:
    """The text. Raises RuleStopped if it is too long."""
    if len(text) > LONGEST_TEXT:
        raise RuleStopped("it makes a text that is too long")
    return text


def printable(text: str) -> str:
    """Escapes control and other invisible characters, so that text of a node cannot control a
    terminal."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text
    )
