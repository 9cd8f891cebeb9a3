"""Items of a list that are equal in all that a rule reads of them: one is judged, and where it passes the others pass too.

A node has 144 links, of which mostly all count the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any

from unhang.audit.judge.syntax import Path
from unhang.schemas.shapes import Shape, fact_shapes

Values = Callable[[Any], Any]  # item -> the values that a rule reads of it. Raises AttributeError where an object on the way is null


@lru_cache(maxsize=4096)
def values_of_items(items: Path, reads: frozenset[Path]) -> Values | None:
    """What takes the values at these paths out of an item of the list. None if they are anything but single values that are written in one way.

    items: path of the list's items in the facts, as interconnect.links.*; reads: of the conditions that are asked of each item.
    """
    shape: Shape | None = fact_shapes().get(items[0])
    for name in items[1:]:
        shape = None if shape is None else shape.fields.get(name) if shape.kind == "object" else shape.item
    inside = sorted(path[len(items) :] for path in reads if path[: len(items)] == items)
    if shape is None or not inside or not all(_is_written_in_one_way(shape, path) for path in inside):
        return None
    get = attrgetter(*[".".join(path) for path in inside])
    return get if len(inside) > 1 else lambda item: (get(item),)


def _is_written_in_one_way(shape: Shape, path: Path) -> bool:
    """Whether a path leads through objects to a single value, and to no fraction: 1 and 1.0 are equal, and are written in two ways."""
    for name in path:
        if shape.kind != "object" or name not in shape.fields:
            return False
        shape = shape.fields[name]
    return bool(path) and shape.is_scalar and shape.kind != "any" and not shape.fraction
