"""The facts that decide whether a node's policy is refused: one or two kilobytes a node, equal on equal nodes. Values in, values out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from unhang.audit.judge.documents import to_fragment
from unhang.audit.judge.expression import Path
from unhang.schemas.shapes import Shape, fact_shapes

_encode = msgspec.json.Encoder(order="deterministic", enc_hook=str).encode
Tree = dict[str, "Tree"]


class _Probe(msgspec.Struct, gc=False):
    """A probe without its duration, which differs from node to node: only why facts are missing."""

    status: Any = None
    error: Any = None
    unread: Any = None


class PolicyFacts:
    """Extracts these facts, and the probes of their sections, from the typed sections of many nodes. paths: of facts."""

    def __init__(self, paths: Collection[Path]) -> None:
        rows = [(name, _section(name, below), None) for name, below in _tree_of(paths).items()]
        self._structure: Any = msgspec.defstruct("PolicyFacts", rows, omit_defaults=True, gc=False)

    def of(self, sections: Any) -> bytes:
        """The facts as JSON: equal for two nodes only if all of these facts are. sections: typed (judge.documents)."""
        return _encode(msgspec.convert(sections, self._structure, from_attributes=True))


def sections_of(facts: bytes) -> Any:
    """Typed sections with only these facts, from the JSON."""
    return to_fragment(msgspec.json.decode(facts))


def _tree_of(paths: Collection[Path]) -> Tree:
    """Paths of facts as nested keys, `*` for the items of a list; a value that is read as a whole has no keys below it."""
    tree: Tree = {}
    for path in sorted(paths):
        if not any(path[:length] in paths for length in range(1, len(path))):
            below = tree
            for part in path:
                below = below.setdefault(part, {})
    return tree


def _section(name: str, tree: Tree) -> Any:
    """The type of a section with the wanted facts and its probe."""
    fields = tree or dict[str, Tree].fromkeys(fact_shapes()[name].fields, {})
    rows = [(key, _type_of(fact_shapes()[name].fields[key], below, f"{name}_{key}"), None) for key, below in fields.items() if key != "probe"]
    return msgspec.defstruct(f"PolicyFacts_{name}", [*rows, ("probe", _Probe | None, None)], gc=False) | None


def _type_of(shape: Shape, tree: Tree, name: str) -> Any:
    """The type of the wanted facts at this place and below; a map is read as a whole."""
    if tree and shape.kind == "list" and shape.item is not None:
        return list[_type_of(shape.item, tree.get("*", {}), f"{name}_item")] | None  # type: ignore[misc]
    if tree and shape.kind == "object":
        rows = [(key, _type_of(shape.fields[key], below, f"{name}_{key}"), None) for key, below in tree.items()]
        return msgspec.defstruct(f"PolicyFacts_{name}", rows, gc=False) | None
    return Any
