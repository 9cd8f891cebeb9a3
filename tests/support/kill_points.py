"""Points at which a rollout's controller is killed: in each step; on booted nodes also between
steps and while a node works; in the change and the rollback."""

from __future__ import annotations

import os

PROVED, UNFIT = "gpu001", "gpu002"
FORWARD = (
    "lock",
    "drain",
    "wait",
    "save",
    "apply",
    "reboot",
    "audit",
    "smoke_alone",
    "smoke_together",
    "audit_again",
    "release",
)
BACK = ("roll_back", "reboot_back", "audit_back", "keep")
EVERY = [
    (host, when, step)
    for host, steps in ((PROVED, FORWARD), (UNFIT, BACK))
    for step in steps
    for when in ("before", "after")
]
# Steps in which the node continues for a while without its controller.
AT_WORK = ("apply", "reboot", "roll_back", "reboot_back")
LAST = ("release", "keep")  # no step follows them


def chosen(some, every=EVERY):
    """(host, when, step) of each: these, all points where KILL_POINTS=every, or those that it names
    (KILL_POINTS='gpu001 within apply, …')."""
    named = os.environ.get("KILL_POINTS", "")
    if not named:
        return some
    return every if named == "every" else [tuple(one.split()) for one in named.split(",")]


def every_on_nodes():
    """Sorted in the order in which a rollout reaches them."""
    found = []
    for host, when, step in EVERY:
        found += [(host, "within", step)] if when == "after" and step in AT_WORK else []
        found += [(host, when, step)]
        found += [(host, "done", step)] if when == "after" and step not in LAST else []
    return found
