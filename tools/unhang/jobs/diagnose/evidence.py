"""Evidence for and against causes: one piece for each signature that matched, and more from several facts together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event

MOST_LINES = 4
QUOTED_COUNTS = 0.25  # a line in a quotation or in source code is weak evidence about this run


@dataclass(frozen=True)
class Evidence:
    """One reason for a cause (weight above 0) or against it. events: its lines. why: one line for people. id: of its signature or rule."""

    cause: str
    weight: float
    why: str
    events: tuple[Event, ...]
    id: str
    sources: tuple = ()
    places: tuple = ()  # {file, line, text} of further lines, which are no events


def signature_evidence(facts: Facts, weights: dict[str, float]) -> Iterator[Evidence]:
    """Each signature counts once for each of its causes, with its best line, even if it matched several times."""
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
    """The first few lines, of different hosts, ranks and pods where there are; of each, the first line that names most."""
    shown: dict[tuple, Event] = {}
    for event in events:
        who = (event.file, event.prefix.host, event.prefix.rank, event.fields.get("pod"))
        if (who in shown and _names(event) > _names(shown[who])) or (who not in shown and len(shown) < MOST_LINES):
            shown[who] = event
    yield from shown.values()


def _names(event: Event) -> int:
    """How many fields the line has, such as the process, its memory or the device."""
    return sum(value is not None for value in event.fields.values())
