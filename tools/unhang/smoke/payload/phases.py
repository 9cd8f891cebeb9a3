"""Which phases there are, in which order, and how long each may take."""

from __future__ import annotations

from typing import Any

from .bandwidth import phase_bandwidth, phase_pace
from .binding import phase_binding
from .consistency import phase_consistency
from .environment import phase_environment
from .init import phase_init
from .limits import STEP_S
from .operations import OPERATIONS, phase_agreement, phase_operation
from .rendezvous import phase_rendezvous
from .shapes import phase_shapes
from .training import phase_ddp, phase_fsdp

PHASE_LIMIT_S = {
    "environment": 120.0,
    "rendezvous": 60.0,
    "bandwidth": 120.0,
}
PHASES = {
    "environment": phase_environment, "binding": phase_binding, "rendezvous": phase_rendezvous,
    "consistency": phase_consistency, "init": phase_init,
    **dict.fromkeys(OPERATIONS, phase_operation), "agreement": phase_agreement,
    "shapes": phase_shapes, "ddp": phase_ddp, "fsdp": phase_fsdp,
    "pace": phase_pace, "bandwidth": phase_bandwidth,
}  # fmt: skip
ALWAYS = ("environment", "binding", "rendezvous", "consistency", "init")


def phases_of(plan: dict[str, Any]) -> list[str]:
    """Names of the phases to run, in order."""
    asked = plan.get("phases") or PHASES
    checked = any(name in OPERATIONS for name in asked)
    return [
        name
        for name in PHASES
        if name in ALWAYS or name in asked or (name == "agreement" and checked)
    ]


def phase_limit_s(plan: dict[str, Any], name: str) -> float:
    """How long a phase may take in all. The steps in it have their own, much shorter limit."""
    base = plan.get("rendezvous_timeout_s") if name == "rendezvous" else None
    base = float(base) if base else PHASE_LIMIT_S.get(name, 60.0)
    if name not in ALWAYS:
        base = max(base, 6 * (plan.get("step_timeout_s") or STEP_S))
    return float(base + plan.get("world_size", 1) * 0.05)
