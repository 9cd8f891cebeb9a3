"""Ranks that wait for each other, and whom of them to name first. Values in, values out."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from unhang.core.verdict.waiting import Step, Wait

MESSAGE = "send/recv"
MOST_COMPARED = 256  # operations whose order is compared, each with each


class Edge(NamedTuple):
    """Each of the waiting waits for each of the awaited."""

    waiting: frozenset[int]
    awaited: frozenset[int]


def waiting_behind(ranks: Iterable[int], edges: Sequence[Edge]) -> dict[int, frozenset[int]]:
    """{rank: those that wait for it, also by way of others}. Ranks that are awaited in the same
    edges have one answer, which is made once."""
    of_rank: dict[int, list[int]] = {}
    for number, edge in enumerate(edges):
        for rank in edge.awaited:
            of_rank.setdefault(rank, []).append(number)
    made: dict[tuple[int, ...], frozenset[int]] = {}
    found = {}
    for rank in ranks:
        first = tuple(of_rank.get(rank, ()))
        if first not in made:
            made[first] = _behind(first, of_rank, edges)
        found[rank] = made[first]
    return found


def _behind(
    first: Iterable[int], of_rank: Mapping[int, Sequence[int]], edges: Sequence[Edge]
) -> frozenset[int]:
    seen = set(first)
    found: set[int] = set()
    ahead = list(seen)
    while ahead:
        new = edges[ahead.pop()].waiting - found
        found |= new
        more = {number for rank in new for number in of_rank.get(rank, ())} - seen
        seen |= more
        ahead += more
    return frozenset(found)


def ring_of(edges: Sequence[Edge], led: Set[int]) -> set[int]:
    """The ranks that wait for each other: without those that are led to somebody, those that wait
    for none of the rest, and those that none of the rest waits for."""
    ring = {rank for edge in edges for rank in edge.waiting if rank not in led}
    while True:
        awaited = {one for edge in edges if edge.waiting & ring for one in edge.awaited}
        waiting = {one for edge in edges if edge.awaited & ring for one in edge.waiting}
        if ring <= awaited and ring <= waiting:
            return ring
        ring = ring & awaited & waiting


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
