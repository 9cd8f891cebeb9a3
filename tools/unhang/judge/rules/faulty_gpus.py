"""The list `faulty` of the language of rules: GPUs of a node that need something, each with its
verb. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unhang.core.gpu_verbs import TABLES, VERBS, gpu_verbs
from unhang.core.schemas.shapes import TEXT, Shape
from unhang.judge.rules.values import Fact, Unknown

FAULTY = Shape(
    "object",
    {
        "index": Shape("number", identity=True), "uuid": Shape("text", identity=True),
        "pci_address": Shape("text", identity=True), "name": TEXT, "because": TEXT,
        "verb": Shape("text", values=VERBS),
    },
)  # fmt: skip
"""name: GPU 3 (UUID, PCI address); because: the faults that ask for the verb, with commas."""
_READ = """\
faults.events.*.kind faults.events.*.code faults.events.*.pci_address faults.events.*.count
faults.events.*.line faults.resets.*.uuid faults.resets.*.pci_address faults.resets.*.verb
faults.resets.*.because.* faults.resets.*.age_s gpus.devices.*.index gpus.devices.*.uuid
gpus.devices.*.pci_address gpus.devices.*.error gpus.devices.*.recovery_action
gpus.devices.*.row_remap.pending gpus.devices.*.row_remap.failed
gpus.devices.*.retired_pages.pending"""
READS = frozenset(tuple(path.split(".")) for path in _READ.split())
_FLAGS = (("row_remap", ("pending", "failed")), ("retired_pages", ("pending",)))


def faulty(sections: Any, tables: Mapping[str, Any], why_null: Any) -> list[Any]:
    """The faulty GPUs as Fact of the shape FAULTY, and an Unknown for each fact that was not read
    and could ask for something."""
    asked = (why_null(path) for path in _not_read_of_gpus(sections))
    found: list[Any] = [one for one in asked if one.kind == "unread"]
    found += [
        Unknown("unread", path, "error", "the node gave no value")
        for path in _not_read_of_faults(sections)
    ]
    for one in gpu_verbs(sections, {name: tables.get(name, {}) for name in TABLES}):
        facts = {
            "index": one.index, "uuid": one.uuid, "pci_address": one.pci_address,
            "name": one.name, "because": ", ".join(one.because), "verb": one.verb,
        }  # fmt: skip
        found.append(Fact(facts, FAULTY, one.path))
    return found


def _not_read_of_gpus(sections: Any) -> Iterator[str]:
    """Paths without a value; one that the GPU does not have is among them."""
    devices = getattr(getattr(sections, "gpus", None), "devices", None)
    if devices is None:
        yield "gpus.devices"
    if getattr(getattr(sections, "faults", None), "events", None) is None:
        yield "faults.events"
    for place, device in enumerate(devices or ()):
        at = f"gpus.devices[{place}]"
        if not device.error:
            yield from (f"{at}.{one}" for one in _nulls(device, "pci_address", "recovery_action"))
            for holder, names in _FLAGS:
                inside = getattr(device, holder)
                lacking = [""] if inside is None else [f".{one}" for one in _nulls(inside, *names)]
                yield from (f"{at}.{holder}{one}" for one in lacking)


def _not_read_of_faults(sections: Any) -> Iterator[str]:
    """Paths that every event and reset has, in a list that was read."""
    section = getattr(sections, "faults", None)
    for place, event in enumerate(getattr(section, "events", None) or ()):
        names = ("code", "pci_address", "count", "line") if event.kind == "xid" else ("kind",)
        yield from (f"faults.events[{place}].{name}" for name in _nulls(event, *names))
    for place, row in enumerate(getattr(section, "resets", None) or ()):
        lacking = _nulls(row, "verb", "age_s", "because", "pci_address")
        lacking += ["because[0]"] if None in (row.because or ()) else []
        yield from (f"faults.resets[{place}].{name}" for name in lacking)


def _nulls(holder: Any, *names: str) -> list[str]:
    return [name for name in names if getattr(holder, name) is None]
