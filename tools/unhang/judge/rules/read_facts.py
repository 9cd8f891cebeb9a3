"""The facts that rules read, taken from a node's typed sections as JSON: equal for two nodes only
if these facts are, also in how a number is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from unhang.core.schemas.shapes import Shape, fact_shapes
from unhang.judge.rules.syntax import WHOLE, Path

Tree = dict[str, "Tree"]
Read = Callable[[Any], bytes]
_encode = msgspec.json.Encoder(order="deterministic", enc_hook=str).encode
_NAMED = re.compile(r"\[(?!\*\]|[0-9]+\])")  # a row of probe.unread that names an item by its path


def reader_of(paths: Collection[Path]) -> Read:
    """A function of typed sections that returns the facts at these paths. A fact below a null is
    written as that null, a map as a whole."""
    rows = [
        (name, _type_of(fact_shapes()[name], below, name) | None, None)
        for name, below in _tree_of(paths).items()
    ]
    structure: Any = msgspec.defstruct("ReadFacts", rows, omit_defaults=True, gc=False)
    return lambda sections: _encode(msgspec.convert(sections, structure, from_attributes=True))


def reader_of_account(name: str) -> Read:
    """A function of typed sections that returns why facts of a section are missing. A reason may
    name an item by its path: then the whole section counts."""

    def read(sections: Any) -> bytes:
        section = getattr(sections, name)
        if section is None:
            return b""
        rows = section.probe.unread or ()
        if any(_NAMED.search(row.field or "") for row in rows):
            return _encode(section)
        return _encode((section.probe.status, section.probe.error, rows))

    return read


def value_at(holder: Any, path: Path) -> bytes:
    """A value of plain data, such as a policy, as JSON; a list or a map that is read in part, as a
    whole."""
    for depth, name in enumerate(path):
        if not isinstance(holder, dict) or name == WHOLE:
            break
        if name not in holder:
            return b"missing at %d" % depth
        holder = holder[name]
    return _encode(holder)


def _tree_of(paths: Collection[Path]) -> Tree:
    """Paths of facts as nested keys, `*` for the items of a list."""
    tree: Tree = {}
    for path in sorted(paths):
        below = tree
        for part in path:
            below = below.setdefault(part, {})
    return tree


def _type_of(shape: Shape, tree: Tree, name: str) -> Any:
    """The type of the wanted facts at this place and below."""
    if shape.kind == "list" and shape.item is not None and shape.item.kind == "object":
        return list[_type_of(shape.item, tree.get("*", {}), f"{name}_item") | None]  # type: ignore[misc]
    if shape.kind == "object":
        fields = [
            (key, _type_of(shape.fields[key], below, f"{name}_{key}") | None, None)
            for key, below in tree.items()
        ]
        return msgspec.defstruct(f"{name}_read", fields, gc=False)
    return Any
