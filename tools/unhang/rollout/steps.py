"""The words of a rollout: its steps, what is asked of a node, what it answers, what the journal keeps. Values only; contract 5 of docs/architecture.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# In the order in which a playbook goes through them once: what a node needs next always stands behind what it has done, whichever way it goes.
STEPS = (
    "lock", "drain", "wait", "save", "smoke_before", "apply", "reboot", "audit", "smoke_alone", "smoke_together",
    "roll_back", "reboot_back", "audit_back", "keep", "release",
)  # fmt: skip
PROOFS = ("audit", "smoke_alone", "smoke_together")
BEFORE = "smoke_before"  # measures the node as it was found: evidence, never a verdict
WAIT = "wait"  # for jobs
TOGETHER = "smoke_together"  # one act for all nodes of a batch that are there
REBOOTS = ("reboot", "reboot_back")
# Entries of the journal that are about no single node.
ROLLOUT, BRAKE, FLOOR, TORN = "rollout", "brake", "floor", "torn"
BEGUN, DONE, FAILED, SILENT, FENCED, DEFERRED = "begun", "done", "failed", "silent", "fenced", "deferred"
STATUSES = (BEGUN, DONE, FAILED, SILENT, FENCED, DEFERRED)

# How a node stands. Final ones are never taken up again by this rollout; the others are, when the same command is started again.
RELEASED, HELD, KEPT, LOST, TAKEN_OVER = "released", "held", "kept", "lost", "taken over"
FINAL = (RELEASED, HELD, KEPT, LOST, TAKEN_OVER)
REFUSED, WITHDRAWN, NO_ANSWER, UNRELEASED, POSTPONED = "refused", "withdrawn", "no answer", "not released", "deferred"
RESTING = (REFUSED, WITHDRAWN, NO_ANSWER, UNRELEASED, POSTPONED)
TO_COME, UNDER_WAY = "to come", "under way"
MEANINGS = {
    RELEASED: "proved healthy and given back",
    HELD: "proved healthy; somebody else has drained it, and it stays drained",
    KEPT: "not proved: rolled back, as it was before, left drained with the reason",
    LOST: "not proved and not brought back: a person has to look; left drained",
    TAKEN_OVER: "another run has taken the node over; it was left to that run",
    REFUSED: "not touched",
    WITHDRAWN: "nothing was changed on it, and it was given back as it was",
    NO_ANSWER: "it did not answer, or its answer was not understood",
    UNRELEASED: "it could not be given back; it is still drained",
    POSTPONED: "not touched: too many nodes are out of service",
    TO_COME: "not touched yet",
    UNDER_WAY: "a step was begun and has no end in the journal",
}


@dataclass(frozen=True)
class Target:
    """A host of the plan. boot_id: when the plan was made, None where it was not read; reboots: the most that the plan allows, trial boots among them.

    boots_back: whether the plan has a boot for the way back.
    running: {"kernel": release, "driver": version} that has to run after a reboot; refused: why the plan is not good for this host any more.
    """

    host: str
    boot_id: str | None = None
    reboots: int = 0
    running: Mapping[str, str] = field(default_factory=dict)
    refused: str | None = None
    boots_back: bool = True


@dataclass(frozen=True)
class Order:
    """What is to be done on a host now. token: the node's number, which goes with everything that acts.

    boot_id: the boot in which it is done, None where any will do; a reboot leaves this boot and no other.
    reboots_left: how many times the step may boot the node.
    """

    host: str
    step: str
    token: int = 0
    boot_id: str | None = None
    reboots_left: int = 0
    why: str = ""


@dataclass(frozen=True)
class StepResult:
    """What came of an order. status: ok, failed, silent (unreachable, hung) or fenced (the node has a higher number); evidence: what was seen."""

    status: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """One line of the journal. at: RFC 3339, UTC; host: "" for what is about the rollout; token: the node's number, or the controller's."""

    at: str
    host: str
    step: str
    status: str
    token: int = 0
    evidence: Mapping[str, Any] = field(default_factory=dict)
