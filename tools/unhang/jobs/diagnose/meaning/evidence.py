"""Evidence for and against causes: one piece for each signature that matched, and more from several
facts together. What a piece weighs, and how pieces add up.

The numbers work as log-odds: +1 makes a cause about three times as likely against the others. They
were set by what a message means (a program that names the fault is decisive, a consequence that
many faults share is weak), then checked on a collection of solved threads; no number was fitted to
a single log. Each further piece of evidence for the same cause counts half as much as the one
before it, so that ten hints never make a proof.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event

WEIGHTS = {"decisive": 6.0, "strong": 4.0, "supporting": 2.0, "hinting": 1.3, "weak": 0.7}
DECISIVE, STRONG, SUPPORTING, HINTING, WEAK = WEIGHTS.values()
MOST_PIECES = 64  # further evidence adds less than the precision of a float
NOTHING = 2.0  # the score of "none of these"
# bonus for the cause of the earliest error, because later errors are often its consequences
FIRST_ERROR = 1.0
ABOVE_WARNING = 3.5  # from this score on a cause has the severity of its row
ABOVE_INFO = 1.8  # from this score on it is a warning, below it a remark
MOST_LINES = 4
QUOTED_COUNTS = 0.25  # a line in a quotation or in source code is weak evidence about this run
RANK = re.compile(r"rank \d+")


@dataclass(frozen=True)
class Evidence:
    """One reason for a cause (weight above 0) or against it. events: its lines. why: one line for
    people. id: of its signature or rule. who: the ranks or devices that it names."""

    cause: str
    weight: float
    why: str
    events: tuple[Event, ...]
    id: str
    sources: tuple = ()
    places: tuple = ()  # {file, line, text} of further lines, which are no events
    who: tuple[str, ...] = ()
    words: Mapping[str, Any] = field(default_factory=dict)  # instead of those of its cause

    @property
    def ranks(self) -> set[str]:
        """rank 3, for each rank of who."""
        return {one for one in self.who if RANK.fullmatch(one)}


def weighed(
    weights: Mapping[str, float], why: str, events: tuple[Event, ...], id_: str, **more: Any
) -> Iterator[Evidence]:
    """One reason for several causes, or against them. weights: by cause. more: fields of each."""
    for cause, weight in weights.items():
        yield Evidence(cause, weight, why, events, id_, **more)


def signature_evidence(facts: Facts) -> Iterator[Evidence]:
    """Each signature counts once for each of its causes, with its best line, even if it matched
    several times."""
    by_id: dict[str, list[Event]] = {}
    for event in facts.events:
        if event.signature.for_ or event.signature.against:
            by_id.setdefault(event.id, []).append(event)
    for name, events in by_id.items():
        plain = [event for event in events if not event.quoted]
        factor = 1.0 if plain else QUOTED_COUNTS
        signature = events[0].signature
        lines = tuple(_of_different_ranks(plain or events))
        why = signature.says if plain else f"{signature.says} (in a quotation)"
        for words, sign in ((signature.for_, factor), (signature.against, -factor)):
            by_cause = {cause: WEIGHTS[word] * sign for cause, word in words.items()}
            yield from weighed(by_cause, why, lines, name, sources=signature.sources)


def _of_different_ranks(events: Iterable[Event]) -> Iterator[Event]:
    """The first few lines, of different hosts, ranks and pods where there are; of each, the first
    line that names most."""
    shown: dict[tuple, Event] = {}
    for event in events:
        who = (event.file, event.prefix.host, event.prefix.rank, event.fields.get("pod"))
        if (who in shown and _names(event) > _names(shown[who])) or (
            who not in shown and len(shown) < MOST_LINES
        ):
            shown[who] = event
    yield from shown.values()


def _names(event: Event) -> int:
    """How many fields the line has, such as the process, its memory or the device."""
    return sum(value is not None for value in event.fields.values())


def added_up(weights: Iterable[float]) -> float:
    """The score of several pieces of evidence for one cause: the strongest counts fully, each
    further one half as much as the one before."""
    return sum(
        weight / 2**place for place, weight in enumerate(heapq.nlargest(MOST_PIECES, weights))
    )


def shares(scores: Iterable[float]) -> list[float]:
    """Each score as its share of belief, 0 to 1; the rest to 1 is the share of "none of these"."""
    values = [math.exp(min(score, 50.0)) for score in scores]
    whole = math.exp(NOTHING) + sum(values)
    return [value / whole for value in values]
