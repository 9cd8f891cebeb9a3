"""Where a rollout's controller is killed: before a node has done a step and when it has, on its way forward and on its way back."""

from __future__ import annotations

import os

PROVED, UNFIT = "gpu001", "gpu002"
FORWARD = ("lock", "drain", "wait", "save", "smoke_before", "apply", "reboot", "audit", "smoke_alone", "smoke_together", "release")
BACK = ("roll_back", "reboot_back", "audit_back", "keep")
EVERY = [(host, when, step) for host, steps in ((PROVED, FORWARD), (UNFIT, BACK)) for step in steps for when in ("before", "after")]


def chosen(some):
    """(host, "before" or "after", step) of each: these, or every one there is where KILL_POINTS=every."""
    return EVERY if os.environ.get("KILL_POINTS") == "every" else some
