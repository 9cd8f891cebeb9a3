"""The facts on which a node's plan depends: nodes with equal values are planned once."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

# These facts decide roles, versions and reboots. Boot id, configuration hash, jobs and the judge of policies use the whole node.
FIELDS = {
    "node": ("virtualization", "image", "os", "kubernetes"),
    "kernel": ("release", "out_of_tree", "boot"),
    "driver": ("loaded", "on_disk", "install_method", "nouveau_loaded"),
    "fabric_manager": ("version",),
    "cuda": ("default",),
    "nccl": ("libraries", "settings"),
    "interconnect": ("iommu",),
}
_encode = msgspec.json.Encoder(order="deterministic").encode


def planned_facts(sections: Any) -> Any:
    """A structure with only these facts, None for a node that was not read. sections: typed (judge.documents); their values are shared, not copied."""
    return None if sections is None else msgspec.convert(sections, _structure(), from_attributes=True)


def json_of(facts: Any) -> bytes:
    """The facts as JSON, the same bytes for equal facts."""
    return _encode(facts)


@cache
def _structure() -> Any:
    sections = []
    for name, fields in FIELDS.items():
        section = msgspec.defstruct(f"Planned_{name}", [(field, Any, None) for field in fields], gc=False)
        sections.append((name, section | None, None))
    return msgspec.defstruct("PlannedFacts", sections, gc=False)
