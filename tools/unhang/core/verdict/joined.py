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
    """The answer of all kinds together; the most certain one where they have nobody in common,
    which is no more than possible then, and names nobody whom a stack shows waiting while others
    are elsewhere. Two kinds that agree are likely at least."""
    known = sorted(answers, key=_strength, reverse=True)
    if not known or seen.goes_on:
        return WaitedFor()
    best = known[0]
    named = [{*one.roots} for one in known if one.roots and not one.left_the_order]
    if {*best.roots} in named:
        best = _with_common(best, [*named, *filter(None, [{*seen.stands}])], seen)
    if best.roots and seen.works.issuperset(best.roots):
        best = replace(best, certainty=POSSIBLE)
    return best


def _with_common(best: WaitedFor, named: Sequence[set[int]], seen: Seen) -> WaitedFor:
    common = set.intersection(*named)
    meant = (common or {*best.roots} - seen.waits) - seen.serves
    roots = tuple(rank for rank in best.roots if rank in meant)
    waits = tuple(wait for wait in best.waits if meant & {*wait.awaited})
    follows = tuple(wait for wait in (*best.waits, *best.follows) if wait not in waits)
    agreed = LIKELY if len(named) > 1 and best.certainty == POSSIBLE else best.certainty
    return replace(
        best, roots=roots, waits=waits, follows=follows, certainty=agreed if common else POSSIBLE
    )


def _strength(answer: WaitedFor) -> int:
    """How certain an answer is about whom it names, 0 if it names nobody."""
    if not answer.names_somebody:
        return 0
    return len(_ORDER) if answer.different else _ORDER.index(answer.certainty) + 1
