"""Ranks that wait for each other, and whom of them to name first. Values in, values out."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from unhang.core.verdict.waiting import Step, Wait

MESSAGE = "send/recv"
MOST_COMPARED = 256  # operations whose order is compared, each with each
MAJORITY = 3  # ranks that wait together, beside which one is odd
MOST_ODD = 2


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


@dataclass(frozen=True)
class Ring:
    """Ranks that wait for each other. ranks: the odd ones first. odd: one or two whose order
    or peer differs from that of the others, () where that is unknown. crossed: the operations
    in which they wait. is_shown: what the odd ones called before shows it, not only what most of
    the others do."""

    ranks: tuple[int, ...] = ()
    odd: tuple[int, ...] = ()
    crossed: tuple[Wait, ...] = ()
    is_shown: bool = False


def ring_in(
    ring: Set[int],
    crossed: Sequence[Wait],
    lacking: Sequence[Wait],
    used: Set[str],
    calls: Mapping[int, Sequence[str]],
    launched: Mapping[int, int] | None,
) -> Ring:
    """Of ranks that wait for each other the one that left the order. lacking: all waits. used:
    groups in which something was completed. calls: {rank: the groups in which it called something,
    in order}.
    launched: {rank: operations of all groups}, None if not known."""
    shown = _wrong_peer(ring, lacking, used) or _left_own_order(ring, crossed, calls)
    odd = shown or _unlike_most(ring, crossed, launched)
    return Ring((*odd, *sorted({*ring} - {*odd})), odd, tuple(crossed), bool(shown))


def _left_own_order(
    ring: Set[int], crossed: Sequence[Wait], calls: Mapping[int, Sequence[str]]
) -> tuple[int, ...]:
    """Ranks that wait in one group, and did not call another first, in which they are awaited, as
    they did the time before."""
    return _few(
        {
            rank
            for one, other in itertools.permutations(crossed[:MOST_COMPARED], 2)
            for rank in ring & {*one.waiting} & {*other.awaited}
            if _skipped(calls.get(rank, ()), one.group.name, other.group.name)
        }
    )


def _skipped(calls: Sequence[str], group: str, other: str) -> bool:
    """Whether `other` was called between the last two calls but one of `group`, and not between the
    last two."""
    at = [place for place, name in enumerate(calls) if name == group][-3:]
    return len(at) == 3 and other in calls[at[0] : at[1]] and other not in calls[at[1] : at[2]]


def _wrong_peer(ring: Set[int], lacking: Sequence[Wait], used: Set[str]) -> tuple[int, ...]:
    """A rank whose message nobody takes, while another one waits for a message from it (or the same
    with receiving), has a wrong peer if no message went that way before, or if it is as far off as
    fewer peers are, and not the last of all seen from the first."""
    messages = [
        wait for wait in lacking if wait.operation == MESSAGE and ring & {*wait.group.members}
    ]
    often = Counter(map(_span, messages))
    ends = [rank for wait in messages for rank in wait.group.members]
    return _few(
        {
            rank
            for one, other in itertools.permutations(messages[:MOST_COMPARED], 2)
            for rank in ring & {*one.waiting} & {*other.behind}
            if one.group.members.index(rank) == other.group.members.index(rank)
            and (
                (one.group.name not in used and other.group.name in used)
                or (often[_span(one)] < often[_span(other)] and _span(one) < max(ends) - min(ends))
            )
        }
    )


def _span(message: Wait) -> int:
    sender, receiver = message.group.members
    return abs(sender - receiver)


def _few(ranks: Iterable[int]) -> tuple[int, ...]:
    """The ranks if they are few enough to blame: one, or one and another."""
    ranks = tuple(sorted(ranks))
    return ranks if len(ranks) <= MOST_ODD else ()


def _unlike_most(
    ring: Set[int], crossed: Sequence[Wait], launched: Mapping[int, int] | None
) -> tuple[int, ...]:
    """Of many that wait together the one that alone is awaited elsewhere, and has called less than
    they; or the one for which many wait, and which waits alone; or which waits alone for many."""
    for wait in crossed:
        elsewhere = {rank for one in crossed if one is not wait for rank in one.awaited}
        astray = elsewhere & {*wait.waiting}
        is_one = len(wait.waiting) >= MAJORITY and len(astray) == 1
        if is_one and (launched is None or _lacks_one(wait, min(astray), launched)):
            return tuple(astray)
    for wait in crossed:
        others = [one for one in crossed if one is not wait]
        awaited = ring & {*wait.awaited}
        alone = others and all({*one.waiting} & ring <= awaited for one in others)
        if len(wait.waiting) >= MAJORITY and len(awaited) == 1 and alone:
            return tuple(awaited)
        lone = ring & {*wait.waiting}
        if len(lone) == 1 and len(wait.behind) >= MAJORITY:
            return tuple(lone)
    return ()


def _lacks_one(wait: Wait, rank: int, launched: Mapping[int, int]) -> bool:
    """Whether a rank launched less than most that wait with it: they did first what it did not."""
    more = [one for one in wait.waiting if launched.get(one, 0) > launched.get(rank, 0)]
    return len(more) * 2 > len(wait.waiting) - 1


def entered_in_unlike_order(full: Sequence[Wait], opened: Mapping[int, Sequence[Step]]) -> Ring:
    """The ranks that entered two collectives of two groups in unlike order, which all members of
    both entered; odd are those with the order that few have."""
    place = {id(step): at for steps in opened.values() for at, step in enumerate(steps)}
    collectives = [wait for wait in full if wait.operation != MESSAGE]
    for first, second in itertools.combinations(collectives[:MOST_COMPARED], 2):
        places = {step.rank: place[id(step)] for step in first.steps}
        sooner: dict[bool, set[int]] = {}
        for step in second.steps:
            if step.rank in places:
                is_sooner = places[step.rank] < place[id(step)]
                sooner.setdefault(is_sooner, set()).add(step.rank)
        if len(sooner) > 1:
            few, many = sorted(sooner.values(), key=lambda ranks: (len(ranks), min(ranks)))
            odd = _few(few) if len(few) < len(many) else ()
            return Ring((*sorted(few), *sorted(many)), odd, (first, second))
    return Ring()
