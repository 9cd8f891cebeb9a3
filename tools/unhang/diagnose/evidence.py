"""Evidence for and against causes: one piece per signature that matched, and what follows from several facts together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from unhang.diagnose.facts import Facts
from unhang.diagnose.scanning import Event

QUOTED_COUNTS = 0.25  # a line in a quotation or in source code says little about this run


@dataclass(frozen=True)
class Evidence:
    """One reason to believe in a cause (or, weight below 0, not to). events: the lines that carry it. why: one line for people. id: where it comes from."""

    cause: str
    weight: float
    why: str
    events: tuple[Event, ...]
    id: str
    sources: tuple = ()
    places: tuple = ()  # {file, line, text} of lines that are no events


def signature_evidence(facts: Facts, weights: dict[str, float]) -> Iterator[Evidence]:
    """Each signature speaks once for each of its causes, by its best line, however often it matched."""
    by_id: dict[str, list[Event]] = {}
    for event in facts.events:
        if event.signature.for_ or event.signature.against:
            by_id.setdefault(event.signature.id, []).append(event)
    for name, events in by_id.items():
        plain = [event for event in events if not event.quoted]
        factor = 1.0 if plain else QUOTED_COUNTS
        signature = events[0].signature
        lines = tuple(_of_different_ranks(plain or events))
        why = signature.says if plain else f"{signature.says} (in a quotation)"
        for cause, word in signature.for_.items():
            yield Evidence(cause, weights[word] * factor, why, lines, name, signature.sources)
        for cause, word in signature.against.items():
            yield Evidence(cause, -weights[word] * factor, why, lines, name, signature.sources)


def _of_different_ranks(events: Iterable[Event]) -> Iterator[Event]:
    """The first few lines, of different hosts and ranks where there are."""
    seen = set()
    for event in events:
        who = (event.file, event.prefix.host, event.prefix.rank)
        if who not in seen:
            seen.add(who)
            yield event
        if len(seen) == 4:
            return
