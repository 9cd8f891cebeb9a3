"""Facts that differ from node to node by their nature."""

from __future__ import annotations

from collections.abc import Iterable

from unhang.audit.judge.syntax import Path
from unhang.schemas.shapes import Shape, fact_shapes

_NEVER_ALIKE = frozenset(("boot_id", "processes", "holders", "mapped_by", "line", "addresses", "gid"))


def is_own(path: Path) -> bool:
    """Whether a fact differs from node to node by its nature: a name, a measured number, the id of a boot, a process, an address, a line of a log.

    Counters and states do not count as own facts: they may change at any time, but are equal on most nodes (zero, quiet).
    """
    if path[0] == "host" or not _NEVER_ALIKE.isdisjoint(path):
        return True
    shape: Shape | None = fact_shapes().get(path[0])
    for part in path[1:]:
        if shape is None:
            return False
        shape = shape.fields.get(part) if shape.kind == "object" else shape.item
    return shape is not None and ((shape.sample and not shape.counter and shape.kind == "number") or (shape.identity and shape.kind == "text"))


def lists_of(paths: Iterable[Path]) -> set[Path]:
    """The lists that contain a node's own facts. Their length is configuration: a node may have fewer GPUs than another."""
    return {path[: path.index("*")] for path in paths if "*" in path and is_own(path) and not is_own(path[: path.index("*")])}
