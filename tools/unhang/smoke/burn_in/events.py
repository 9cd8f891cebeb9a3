"""Checks the events of a burn-in's payload before anything reads them: kinds, shapes and bounds of schemas/burn-in-events-1.yaml."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from unhang.core.schemas.check import check_schema
from unhang.core.schemas.shapes import read_schema
from unhang.core.strict_json import NotStrict, parse_strictly
from unhang.core.verdict.streams import MOST_EVENTS, Event, parse_event

UNFIT = "unfit"  # stands in the place of what is no event of a burn-in; proves nothing and fails nobody
MOST_UNFIT = 5
NO_KIND: dict[str, Any] = {"not": {}}


def parse_burn_in(lines: Iterable[bytes]) -> list[Event]:
    """The events among a node's lines. Events that break the schema are replaced by one of kind UNFIT, with the reason of the first."""
    found: list[Event] = []
    unfit = 0
    for number, line in enumerate(lines):
        if number >= MOST_EVENTS:
            return [*found, _unfit(f"more than {MOST_EVENTS} lines")]
        event = parse_burn_in_event(line)
        if event is None:
            continue
        unfit += event["e"] == UNFIT
        if event["e"] != UNFIT or unfit <= MOST_UNFIT:
            found.append(event)
    return found


def parse_burn_in_event(line: bytes) -> Event | None:
    """One event, None for a line that is none, or one of kind UNFIT."""
    event = parse_event(line)
    if event is None:
        return None
    try:
        parse_strictly(line)
    except NotStrict as problem:
        return _unfit(f"{event['e'][:40]!r} is {problem}")
    schema = _shapes().get(event["e"], NO_KIND)
    fault = next(iter(check_schema(event, schema)), None)
    if fault is None:
        return event
    if schema is NO_KIND:
        return _unfit(f"it has none of kind {event['e'][:40]!r}")
    return _unfit(f"{event['e']}{''.join(f'.{part}' for part in fault.path)[:80]}: {fault.message[:200]}")


@cache
def _shapes() -> dict[str, dict[str, Any]]:
    """Kind of event -> its schema. What does not ask for fields is a shape that several events share."""
    shapes = read_schema("burn-in-events-1")["$defs"]
    return {kind: {**shape, "type": "object", "$defs": shapes} for kind, shape in shapes.items() if "type" not in shape}


def _unfit(why: str) -> Event:
    return {"e": UNFIT, "why": f"the node reported what no burn-in reports: {why}"}
