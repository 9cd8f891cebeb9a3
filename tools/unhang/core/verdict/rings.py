"""Ranks that wait for each other, and whom of them to name first. Values in, values out."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from unhang.core.verdict.waiting import Step, Wait

MESSAGE = "send/recv"
MOST_COMPARED = 256  # operations whose order is compared, each with each


def waiting_behind(root: int, edges: Mapping[int, set[int]]) -> set[int]:
    """The ranks that wait for this one, also by way of others."""
    waiters: dict[int, list[int]] = {}
    for rank, those in edges.items():
        for one in those:
            waiters.setdefault(one, []).append(rank)
    found: set[int] = set()
    ahead = [root]
    while ahead:
        new = [rank for rank in waiters.get(ahead.pop(), ()) if rank not in found]
        found.update(new)
        ahead += new
    return found


def ring_of(edges: Mapping[int, set[int]]) -> set[int]:
    """The ranks that wait for each other: without those that wait for none of the rest, and those
    that none of the rest waits for."""
    ring = set(edges)
    while True:
        awaited = {rank for one in ring for rank in edges[one]}
        left = {rank for rank in ring if rank in awaited and edges[rank] & ring}
        if left == ring:
            return ring
        ring = left


def ring_order(ring: set[int], crossed: Sequence[Wait], used: set[str]) -> tuple[int, ...]:
    """Who waits where fewest do comes first, because most ranks are right. A rank whose message
    nobody takes, while another one of the ring waits for a message from it (or the same with
    receiving), may have a wrong peer; it has if no message went that way before. used: groups in
    which something was completed."""
    messages = [wait for wait in crossed if wait.operation == MESSAGE and wait.group.members]
    doubts = dict.fromkeys(ring, 0)
    for one, other in itertools.permutations(messages[:MOST_COMPARED], 2):
        for end in (0, -1):
            rank = one.group.members[end]
            if rank in ring and rank in one.waiting and rank in other.behind:
                is_same = rank == other.group.members[end]
                is_new = one.group.name not in used and other.group.name in used
                doubts[rank] = max(doubts[rank], is_same + (is_same and is_new))
    fewest = {
        rank: min(len(ring & set(wait.waiting)) for wait in crossed if rank in wait.waiting)
        for rank in ring
    }
    return tuple(sorted(ring, key=lambda rank: (-doubts[rank], fewest[rank], rank)))


def unlike_order(
    full: Sequence[Wait], opened: Mapping[int, Sequence[Step]]
) -> tuple[tuple[int, ...], list[Wait]]:
    """The ranks that entered two collectives of two groups in unlike order, those with the rarer
    order first, and the two."""
    place = {id(step): at for steps in opened.values() for at, step in enumerate(steps)}
    collectives = [wait for wait in full if wait.operation != MESSAGE]
    for first, second in itertools.combinations(collectives[:MOST_COMPARED], 2):
        places = {step.rank: place[id(step)] for step in first.steps}
        sooner = {
            step.rank: places[step.rank] < place[id(step)]
            for step in second.steps
            if step.rank in places
        }
        counts = Counter(sooner.values())
        if len(counts) > 1:
            order = sorted(sooner, key=lambda rank: (counts[sooner[rank]], rank))
            return tuple(order), [first, second]
    return (), []
