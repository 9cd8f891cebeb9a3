"""Checks whether a burn-in may begin here, and that it leaves the GPUs as they were."""

from __future__ import annotations

import time
from typing import Any

from .burn_sensors import OCCUPIED_BYTES, settings_now


def visible_gpus(chosen: str | None, present: int) -> int:
    """How many GPUs the workers will see. chosen: CUDA_VISIBLE_DEVICES."""
    return len([one for one in chosen.split(",") if one.strip()]) if chosen else present


def refusals(plan: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Why no burn-in can run here: there is no GPU, or one is in use."""
    if plan["device"] != "cuda":
        return []
    if before["problem"] or not before["settings"]:
        return ["expected GPUs, found none: %s" % (before["problem"] or "NVML knows of no GPU")]
    reasons = []
    for number, row in enumerate(before["settings"]):
        if row["processes"]:
            reasons.append("GPU %d: expected nobody on it, found processes %s" % (number, ", ".join(map(str, row["processes"]))))
        elif (row["used_bytes"] or 0) > OCCUPIED_BYTES:
            reasons.append("GPU %d: expected free memory, found %d MiB in use by somebody whom NVML does not show here" % (number, row["used_bytes"] >> 20))
    return reasons


def settled(limit_s: float) -> dict[str, Any]:
    """The settings after the driver has freed the workers' memory, which takes it a moment."""
    until = time.monotonic() + limit_s
    while True:
        after = settings_now(limit_s)
        gone = not any(row["processes"] or (row["used_bytes"] or 0) > OCCUPIED_BYTES for row in after["settings"])
        if gone or after["problem"] or time.monotonic() > until:
            return after
        time.sleep(0.2)
