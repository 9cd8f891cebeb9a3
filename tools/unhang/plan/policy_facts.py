"""Facts that decide whether a node's policy is refused: one or two kilobytes a node, equal for nodes that are alike. Values in, values out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from unhang.judge.documents import to_fragment
from unhang.judge.expression import Path

_encode = msgspec.json.Encoder(order="deterministic", enc_hook=str).encode
_PROBE = ("status", "error", "unread")  # why a fact is missing; how long it took differs from node to node
Tree = dict[str, "Tree"]


def tree_of(paths: Collection[Path]) -> Tree:
    """Paths of facts as nested keys, `*` for the items of a list; what is asked for as a whole has nothing below it."""
    tree: Tree = {}
    for path in paths:
        if not any(path[:length] in paths for length in range(1, len(path))):
            below = tree
            for part in path:
                below = below.setdefault(part, {})
    return tree


def facts_under(tree: Tree, sections: Any) -> bytes:
    """These facts of typed sections, as JSON."""
    return _encode({name: _picked(section, below, name) for name, below in tree.items() if (section := getattr(sections, name)) is not None})


def sections_of(facts: bytes) -> Any:
    """Typed sections again, with these facts alone."""
    return to_fragment(msgspec.json.decode(facts))


def _picked(section: Any, tree: Tree, name: str) -> dict[str, Any]:
    probe = {key: msgspec.to_builtins(getattr(section.probe, key)) for key in _PROBE} if section.probe is not None else None
    return {**_below(section, tree), "probe": probe}


def _below(value: Any, tree: Tree) -> Any:
    if value is None or not tree:
        return msgspec.to_builtins(value)
    if isinstance(value, list):
        return [_below(one, tree.get("*", {})) for one in value]
    if isinstance(value, Mapping):
        return {key: _below(one, tree.get("*", tree.get(key, {}))) for key, one in value.items()}
    return {name: _below(getattr(value, name), below) for name, below in tree.items()}
