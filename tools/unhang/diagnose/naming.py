"""Who is meant: the rank, host, GPU, adapter or peer that the lines of a cause name, so that the advice can name them too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unhang.diagnose.evidence import Evidence
from unhang.diagnose.facts import Facts
from unhang.diagnose.failures import rank_of
from unhang.diagnose.scanning import Event

MOST_NAMED = 8
_FIELDS = {
    "pci": "GPU or device at PCI {}", "device": "adapter {}", "hca": "adapter {}", "peer": "peer {}", "address": "address {}", "interface": "interface {}",
    "host": "host {}", "task": "process {}", "pid": "pid {}", "rss": "its memory {}", "job": "of {}", "segment": "segment {}", "symbol": "symbol {}",
    "port": "port {}", "library": "library {}", "what": "{}", "link": "link {}", "path": "{}", "function": "{}",
}  # fmt: skip


def who_is_meant(evidence: Sequence[Evidence], facts: Facts) -> list[str]:
    """What the lines for a cause name, each once, the strongest line first; the serial number of a GPU stands beside its address."""
    named: dict[str, None] = {}
    for event in _lines(evidence):
        if event.signature.program.startswith("people"):
            continue
        for text in _of_event(event, facts):
            named.setdefault(text)
    return list(named)[:MOST_NAMED]


def _lines(evidence: Iterable[Evidence]) -> Iterable[Event]:
    """The lines that carry a cause; symptoms that stand beside them name others, and speak only where nothing else does."""
    events = [event for one in evidence for event in one.events]
    return [event for event in events if event.signature.kind != "symptom"] or events


def _of_event(event: Event, facts: Facts) -> Iterable[str]:
    for name, template in _FIELDS.items():
        value = (event.fields.get(name) or "").strip(" .,;:'\"")
        if value and value != "<unknown>":
            yield template.format(value)
            if name == "pci":
                yield from _serial(value, facts)
    if event.prefix.host and not event.fields.get("host"):
        yield f"host {event.prefix.host}"
    if (rank := rank_of(event)) is not None:
        yield f"rank {rank}"


def _serial(pci: str, facts: Facts) -> Iterable[str]:
    """The driver prints the serial number on a line of its own, right after the GPU's address."""
    for event in facts.of("gpu_serial"):
        if event.fields.get("pci") in (None, pci):
            yield f"serial number {event.fields['serial']}"
            return
