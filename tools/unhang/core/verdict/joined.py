"""One answer of several kinds of evidence about one job. Values in, values out.

Evidence is intersected: whom others wait for is whom every kind that names somebody names, and a
rank that one kind shows waiting is no root in another (`waited_for(waiting=...)`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from unhang.core.verdict.waiting import LIKELY, POSSIBLE, SURE, WaitedFor

_ORDER = (POSSIBLE, LIKELY, SURE)


class Seen(NamedTuple):
    """What stacks or a live look show of ranks. waits: those in a call in which they wait for
    others; stands: those that the others wait for; works: those that are at work there, as in a
    healthy job; serves: those of them that wait for requests; goes_on: a rank that waits now did
    not wait there in the look before, or most are elsewhere than then."""

    waits: frozenset[int] = frozenset()
    stands: frozenset[int] = frozenset()
    works: frozenset[int] = frozenset()
    serves: frozenset[int] = frozenset()
    goes_on: bool = False


def one_answer(answers: Iterable[WaitedFor], seen: Seen) -> WaitedFor:
    """The answer of all kinds together: of the most certain one that names a rank which no other
    kind shows waiting. Where all do, or nobody is in common, it is no more than possible, and the
    waits that contradict it are `against`. Two kinds that agree are likely at least."""
    known = sorted(
        answers,
        key=lambda one: (one.names_somebody, bool(one.different), _ORDER.index(one.certainty)),
        reverse=True,
    )
    if not known or seen.goes_on:
        return WaitedFor()
    best = known[0]
    if best.roots and not best.left_the_order:
        best = _intersected(known, seen)
    if best.roots and seen.works.issuperset(best.roots):
        best = replace(best, certainty=POSSIBLE)
    return best


def _intersected(known: Sequence[WaitedFor], seen: Seen) -> WaitedFor:
    named = [one for one in known if one.roots and not one.left_the_order]
    waiting = set().union(*(one.waiting for one in known))
    free = [one for one in named if {*one.roots} - waiting]
    best = (free or named)[0]
    sets = [*({*one.roots} - waiting for one in free), *filter(None, [{*seen.stands}])]
    common = {*best.roots}.intersection(*sets) if free else set()
    meant = (common or {*best.roots} - seen.waits) - seen.serves
    waits = tuple(wait for wait in best.waits if meant & {*wait.awaited})
    others = [] if common else [one for one in known if one is not best]
    agreed = LIKELY if len(sets) > 1 and best.certainty == POSSIBLE else best.certainty
    return replace(
        best,
        roots=tuple(rank for rank in best.roots if rank in meant),
        waits=waits,
        follows=tuple(wait for wait in (*best.waits, *best.follows) if wait not in waits),
        certainty=agreed if common else POSSIBLE,
        against=tuple(
            one for one in others if meant & one.waiting or meant.isdisjoint(one.roots or meant)
        ),
    )
