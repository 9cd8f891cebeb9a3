"""Types of a rollout: its steps, orders to a node, reports of a node, entries of the journal.
Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# What the node of a step answered, as the journal keeps it; each step has keys of its own.
Evidence = Mapping[str, Any]
# In the order of the playbook, which runs each once: a node's next step always comes after the ones
# that it has done.
STEPS = (
    "lock", "drain", "wait", "save", "apply", "reboot", "audit", "smoke_alone",
    "smoke_together", "audit_again",
    "roll_back", "reboot_back", "audit_back", "keep", "release",
)  # fmt: skip
SMOKES = ("smoke_alone", "smoke_together")
PROOFS = ("audit", *SMOKES, "audit_again")
WAIT = "wait"  # wait for jobs
SOAK = "soak"  # of released nodes, which are asked again after it; no step of the playbook's order
TOGETHER = "smoke_together"  # one test for all nodes of a wave that are ready
REBOOTS = ("reboot", "reboot_back")
UNDO_ROLE = "undo"  # of a plan that undoes a rollout
# Kinds of journal entries that are not about a single node.
ROLLOUT, FAILURE_LIMIT, FLOOR, TORN, REBUILT = (
    "rollout",
    "failure_limit",
    "floor",
    "torn",
    "rebuilt",
)
BEGUN, DONE, FAILED, SILENT, FENCED, DEFERRED, WAITS = (
    "begun",
    "done",
    "failed",
    "silent",
    "fenced",
    "deferred",
    "waits",
)
STATUSES = (BEGUN, DONE, FAILED, SILENT, FENCED, DEFERRED, WAITS)

# States of a node: what a person has to do next differs between them, and the reason says the rest.
# This rollout never changes a final state; it continues nodes in other states when the same command
# is run again.
TO_COME, UNFINISHED, WAITING, POSTPONED = "to come", "unfinished", "waiting", "deferred"
RELEASED, KEPT, LOST, TAKEN_OVER = "released", "kept", "lost", "taken over"
UNDONE = "undone"  # of a row of the status alone: the journal of the undo has the rest
FINAL = (RELEASED, KEPT, LOST, TAKEN_OVER)
# nothing was changed and nothing failed: the same command takes it up again
PUT_OFF = (POSTPONED, WAITING)
MEANINGS = {
    RELEASED: "proved healthy and released",
    KEPT: "not proved: rolled back, as it was before, left drained with the reason",
    LOST: "not proved and not brought back: a person has to look, left drained",
    TAKEN_OVER: "another run has taken the node over; it was left to that run",
    POSTPONED: "the journal has no change of it",  # another one, or a person, may have
    WAITING: "its jobs have not ended yet, and nothing was changed",
    UNFINISHED: "a step was begun and has no end in the journal",
    TO_COME: "not touched yet",
}


@dataclass(frozen=True)
class Target:
    """A host of the plan. boot_id: when the plan was made, None if it was not read; reboots: the
    maximum in the plan, including trial boots. boots_back: whether the plan has a reboot for the
    rollback. running: {"kernel": release, "driver": version} that must run after a reboot; refused:
    why the plan is no longer valid for this host."""

    host: str
    boot_id: str | None = None
    reboots: int = 0
    running: Mapping[str, str] = field(default_factory=dict)
    refused: str | None = None
    boots_back: bool = True


@dataclass(frozen=True)
class Order:
    """The next step of a host. token: of the node's lock; every step that changes the node passes
    it. boot_id: the boot in which the step is valid, None for any; a reboot is done only in this
    boot. reboots_left: number of reboots that the step may make; again: a reboot out of this boot
    was ordered before, so that the node may have booted already."""

    host: str
    step: str
    token: int = 0
    boot_id: str | None = None
    reboots_left: int = 0
    why: str = ""
    again: bool = False


@dataclass(frozen=True)
class StepResult:
    """The result of an order. status: ok, failed, silent (unreachable, hung) or fenced (the node
    has a higher token); evidence: observed values."""

    status: str
    evidence: Evidence = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """One line of the journal. at: RFC 3339, UTC; host: "" for an entry about the rollout; token:
    of the node's lock, or the controller's number."""

    at: str
    host: str
    step: str
    status: str
    token: int = 0
    evidence: Evidence = field(default_factory=dict)
