"""Takes many values out of a section in one call: two sections from which the same comes have the same value at each path, written in the same way."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from unhang.judge.extract import Extractor
from unhang.judge.syntax import Path
from unhang.schemas.shapes import Shape

Take = Callable[[Any], Hashable]
_encode = msgspec.json.Encoder().encode


def takes_of(shape: Shape, name: str, paths: list[Path]) -> list[Take]:
    """What reads all of these paths below a section: those through objects and lists of objects in one call, whatever their number; the others one by one."""
    together = [path for path in paths if path and _is_plain(shape, path)]
    rest = [path for path in paths if path and path not in together]  # whether the section is there tells its account
    return ([_written(shape, name, together)] if together else []) + ([_one_by_one(shape, name, rest)] if rest else [])


def _is_plain(shape: Shape, path: Path) -> bool:
    """Whether a path leads through objects and lists of objects alone, to anything but the mere length of a list of values; a map counts as a whole."""
    for part in path:
        if shape.kind == "map":
            return not shape.sample or shape.counter  # else it may hold what is a node's own
        if shape.kind == "object" and part in shape.fields:
            shape = shape.fields[part]
        elif shape.kind == "list" and part == "*" and shape.item is not None and shape.item.kind != "list":
            shape = shape.item
        else:
            return False
    return shape.is_scalar or shape.kind == "object" or (shape.kind == "list" and shape.item is not None and shape.item.kind == "object")


def _written(shape: Shape, name: str, paths: list[Path]) -> Take:
    """The section without all else, as JSON: there 1, 1.0 and true are three values, as they are for a rule that writes them out."""
    structure = _structure(shape, name, _tree(paths))

    def take(section: Any) -> bytes:
        return _encode(msgspec.convert(section, structure, from_attributes=True))

    return take


def _tree(paths: list[Path]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path in paths:
        place = tree
        for part in path:
            place = place.setdefault(part, {})
    return tree


def _structure(shape: Shape, name: str, tree: dict[str, Any]) -> Any:
    """A type with the fields of the tree alone."""
    if shape.kind == "object":
        fields = [(part, _structure(shape.fields[part], f"{name}_{part}", below) | None, None) for part, below in tree.items()]
        return msgspec.defstruct(name, fields, gc=False)
    if shape.kind == "list" and shape.item is not None and shape.item.kind == "object":
        return list[_structure(shape.item, name, tree.get("*", {})) | None]  # type: ignore[misc]
    return Any


def _one_by_one(shape: Shape, name: str, paths: list[Path]) -> Take:
    """Each value by itself, with how deep a null stands on the way to it."""
    extractor = Extractor({name: shape}, [(name, *path) for path in paths])

    def take(section: Any) -> str:
        return repr(extractor.values(_Holder(name, section)))

    return take


class _Holder:
    """A section under its name, as the sections of a node hold it."""

    def __init__(self, name: str, section: Any):
        setattr(self, name, section)
