"""Reads many values of a section in one call, as a key: sections with equal keys have equal values at these paths."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from unhang.audit.judge.extract import Extractor
from unhang.audit.judge.syntax import Path
from unhang.schemas.shapes import Shape

Take = Callable[[Any], Hashable]
_encode = msgspec.json.Encoder().encode


def takes_of(shape: Shape, name: str, paths: list[Path]) -> list[Take]:
    """A reader of all these paths below a section: paths through objects and lists of objects in one call; other paths one by one."""
    together = [path for path in paths if path and _is_plain(shape, path)]
    rest = [path for path in paths if path and path not in together]  # the section's account shows whether the section exists
    return ([_written(shape, name, together)] if together else []) + ([_one_by_one(shape, name, rest)] if rest else [])


def _is_plain(shape: Shape, path: Path) -> bool:
    """Whether a path leads only through objects and lists of objects, to anything but the length of a list of values; a map counts as one value."""
    for part in path:
        if shape.kind == "map":
            return not shape.sample or shape.counter  # otherwise it may contain a node's own values
        if shape.kind == "object" and part in shape.fields:
            shape = shape.fields[part]
        elif shape.kind == "list" and part == "*" and shape.item is not None and shape.item.kind != "list":
            shape = shape.item
        else:
            return False
    return shape.is_scalar or shape.kind == "object" or (shape.kind == "list" and shape.item is not None and shape.item.kind == "object")


def _written(shape: Shape, name: str, paths: list[Path]) -> Take:
    """The section reduced to these paths, as JSON: in it 1, 1.0 and true are three values, as they are for a rule that quotes them."""
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
    """A type that has only the fields of the tree."""
    if shape.kind == "object":
        fields = [(part, _structure(shape.fields[part], f"{name}_{part}", below) | None, None) for part, below in tree.items()]
        return msgspec.defstruct(name, fields, gc=False)
    if shape.kind == "list" and shape.item is not None and shape.item.kind == "object":
        return list[_structure(shape.item, name, tree.get("*", {})) | None]  # type: ignore[misc]
    return Any


def _one_by_one(shape: Shape, name: str, paths: list[Path]) -> Take:
    """Each value by itself, with the depth of a null on the way to it."""
    extractor = Extractor({name: shape}, [(name, *path) for path in paths])

    def take(section: Any) -> str:
        return repr(extractor.values(_Holder(name, section)))

    return take


class _Holder:
    """A section under its name, as in the sections of a node."""

    def __init__(self, name: str, section: Any):
        setattr(self, name, section)
