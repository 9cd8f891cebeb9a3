"""Parses the output of a node: lines of JSON become events, and one history for each rank. Text of
a node is untrusted data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from unhang_node.base.parse.values import as_map

MOST_EVENTS = 200_000
MOST_LINE_BYTES = 512 * 1024
MOST_TEXT = 20_000
RANK_EVENTS = (
    "rank_begin",
    "phase_begin",
    "phase_end",
    "collective",
    "stall",
    "exit",
    "rank_end",
    "unkillable",
    "transports",
)
Event = dict[str, Any]


@dataclass(frozen=True)
class Stream:
    """One node. ranks: the planned ranks of the node; problem: why it did not answer, or stopped,
    in one line."""

    host: str
    ranks: tuple[int, ...]
    events: tuple[Event, ...] = ()
    problem: str | None = None

    @property
    def ended(self) -> bool:
        """The node reported its end, so nothing is missing."""
        return any(event["e"] == "node_end" for event in self.events)


@dataclass
class Story:
    """The events of one rank."""

    rank: int
    host: str
    begun: list[str] = field(default_factory=list)
    phases: dict[str, Event] = field(default_factory=dict)
    stall: Event | None = None
    exit: Event | None = None
    unkillable: Event | None = None
    ended: bool = False

    def result(self, phase: str) -> Event:
        """The answer of a phase."""
        return as_map(as_map(self.phases.get(phase)).get("result"))

    @property
    def gpu(self) -> str | None:
        """GPU 3 (GPU-…), or None where there is none."""
        device = as_map(self.result("binding").get("device"))
        is_real = device and not device.get("simulated")
        return f"GPU {device.get('index')} ({device.get('uuid')})" if is_real else None

    @property
    def last_phase(self) -> str:
        """The phase of its last event."""
        if self.stall:
            return str(self.stall.get("phase"))
        if self.exit and self.exit.get("phase"):
            return str(self.exit["phase"])
        return self.begun[-1] if self.begun else "environment"

    @property
    def facts(self) -> Event:
        """Answer of the environment phase."""
        return self.result("environment")


def read_stream(
    host: str, ranks: tuple[int, ...], lines: Iterable[bytes], why: str | None
) -> Stream:
    """What a node sent. why: it stopped, if it did not report its end."""
    stream = Stream(host, ranks, tuple(parse_events(lines, ranks)))
    return stream if stream.ended else replace(stream, problem=why)


def parse_events(lines: Iterable[bytes], ranks: Iterable[int]) -> Iterator[Event]:
    """The events among the lines of a node that has these ranks. Lines that are no event, or about
    another node's rank, are skipped."""
    own = set(ranks)
    for number, line in enumerate(lines):
        if number >= MOST_EVENTS:
            return
        event = parse_event(line)
        if event is not None and (event["e"] not in RANK_EVENTS or event.get("rank") in own):
            yield event


def parse_event(line: bytes) -> Event | None:
    """One event, or None."""
    if len(line) > MOST_LINE_BYTES or not line.lstrip().startswith(b"{"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("e"), str):
        return None
    if event["e"] in RANK_EVENTS and (
        not isinstance(event.get("rank"), int) or isinstance(event["rank"], bool)
    ):
        return None
    if event["e"].startswith("phase_") and not isinstance(event.get("phase"), str):
        return None
    return {
        name: value[:MOST_TEXT] if isinstance(value, str) and name != "flight_recorder" else value
        for name, value in event.items()
    }


def stories(streams: Iterable[Stream]) -> dict[int, Story]:
    """One story per rank that was meant, in the order of ranks."""
    found: dict[int, Story] = {}
    for stream in streams:
        for rank in stream.ranks:
            found[rank] = Story(rank, stream.host)
        for event in stream.events:
            if event["e"] in RANK_EVENTS:
                _add_event(found[event["rank"]], event)
    return dict(sorted(found.items()))


def _add_event(story: Story, event: Event) -> None:
    kind = event["e"]
    if kind == "phase_begin":
        story.begun.append(event["phase"])
    elif kind == "phase_end":
        story.phases[event["phase"]] = event
    elif kind == "rank_end":
        story.ended = True
    elif kind in ("stall", "exit", "unkillable"):
        setattr(story, kind, event)
