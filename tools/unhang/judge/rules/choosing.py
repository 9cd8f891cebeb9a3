"""selectattr, rejectattr, select and reject: the items of a list that a test chooses, with the
facts that were read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unhang.judge.rules.values import World


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
