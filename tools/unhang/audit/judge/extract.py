"""Extracts the values at known paths from a node's typed facts: the key under which a rule's verdict is cached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from unhang.audit.judge.syntax import WHOLE, Path
from unhang.schemas.shapes import Shape

MISSING = "\0missing"
NULL_ON_THE_WAY = "\0null"  # a null object may mean "not read", and a null inside it "there is none": the verdicts differ
Take = Callable[[Any], Any]


def freeze(value: Any) -> Any:
    """A hashable copy of plain data."""
    if isinstance(value, dict):
        return tuple((key, freeze(one)) for key, one in value.items())
    return tuple(freeze(one) for one in value) if isinstance(value, list) else value


def has_fractions(shape: Shape | None, path: Path) -> bool:
    """Whether the values at this path may contain equal numbers that are written differently, such as 0, 0.0 and -0.0. Such a value is compared by its
    repr(), because a rule may quote it, and a text must not show another node's spelling.
    """
    for name in path:
        if shape is None or name == WHOLE:
            break
        shape = shape.fields.get(name) if shape.kind == "object" else shape.item
    return shape is not None and _holds_fractions(shape)


def _holds_fractions(shape: Shape) -> bool:
    below = [*shape.fields.values(), *([] if shape.item is None else [shape.item])]
    return shape.fraction or shape.kind == "any" or any(map(_holds_fractions, below))


def _field(shape: Shape, name: str) -> tuple[Take, Shape]:
    """Reads one field of an object (a structure, or plain data under a policy) or one key of a map."""
    if shape.kind == "map":
        return (lambda holder: holder.get(name, MISSING)), shape.item or Shape("any")
    get = attrgetter(name)
    return (lambda holder: holder.get(name) if type(holder) is dict else get(holder)), shape.fields[name]


def _step(get: Take, rest: Take | None) -> Take:
    if rest is None:
        return get

    def take(holder: Any) -> Any:
        value = get(holder)
        return NULL_ON_THE_WAY if value is None else value if value is MISSING else rest(value)

    return take


def taker(shape: Shape, path: Path) -> Take | None:
    """A function that reads `path` from a value of this shape as a hashable value; None if the value itself is hashable."""
    if not path:
        return {"object": _present, "map": _present, "list": len}.get(shape.kind)
    head, rest = path[0], path[1:]
    if head == WHOLE:
        return freeze
    if head != "*":
        get, below = _field(shape, head)
        return _step(get, taker(below, rest))
    item = shape.item or Shape("any")
    if not rest:
        return freeze if item.is_scalar or item.kind in ("list", "map") else len
    inner = taker(item, rest)
    assert inner is not None
    slow = lambda items: tuple([None if one is None else inner(one) for one in items])  # noqa: E731
    return _quick(rest, slow) if is_plain(item, rest) else slow


def is_plain(shape: Shape, path: Path) -> bool:
    """Whether a path leads only through objects to a single value."""
    for name in path:
        if shape.kind != "object" or name not in shape.fields:
            return False
        shape = shape.fields[name]
    return shape.is_scalar


def _quick(path: Path, slow: Take) -> Take:
    """The same as `slow`, but in C code, for typed items without nulls: a node has 144 links and 28 pairs."""
    get = attrgetter(".".join(path))

    def take(items: Any) -> Any:
        try:
            return tuple(map(get, items))
        except AttributeError:
            return slow(items)

    return take


def _present(value: Any) -> bool:
    return value is not None


class Extractor:
    """Reads all paths that the rules of one catalogue need, each once. Common prefixes are followed once."""

    def __init__(self, shapes: Mapping[str, Shape], paths: Iterable[Path]):
        self.paths = sorted(set(paths))
        self.place = {path: number for number, path in enumerate(self.paths)}
        self.steps = _tree(dict(shapes.items()), list(enumerate(self.paths)))

    def values(self, sections: Any) -> list[Any]:
        """The value of each path, in the order of `paths`; None if the section is null; if another value on the way is null, a mark with its depth."""
        out: list[Any] = [None] * len(self.paths)
        _walk(sections, self.steps, out)
        return out


def _tree(fields: Mapping[str, Shape], paths: list[tuple[int, Path]]) -> list[tuple]:
    """(get, leaves [(place, take)], branches, places behind them) for each field, walked by _walk."""
    steps = []
    for name in sorted({path[0] for _, path in paths}):
        below = [(place, path[1:]) for place, path in paths if path[0] == name]
        shape = fields[name]
        deeper = [(place, path) for place, path in below if path and shape.kind == "object"]
        leaves = [(place, taker(shape, path)) for place, path in below if not (path and shape.kind == "object")]
        steps.append((attrgetter(name), leaves, _tree(shape.fields, deeper) if deeper else None, [place for place, _ in deeper]))
    return steps


def _walk(holder: Any, steps: list[tuple], out: list[Any], depth: int = 0) -> None:
    for get, leaves, branches, behind in steps:
        value = get(holder)
        if value is None:
            for place in behind if depth else ():
                out[place] = f"{NULL_ON_THE_WAY}{depth}"
            continue
        for place, take in leaves:
            out[place] = value if take is None else take(value)
        if branches is not None:
            _walk(value, branches, out, depth + 1)
