"""Where each node of a rollout stands, by the journal alone. Entries in, states out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from unhang.rollout.steps import (
    BEGUN,
    DEFERRED,
    DONE,
    FENCED,
    FINAL,
    HELD,
    KEPT,
    LOST,
    NO_ANSWER,
    POSTPONED,
    PROOFS,
    REFUSED,
    RELEASED,
    RESTING,
    SILENT,
    TAKEN_OVER,
    TO_COME,
    UNDER_WAY,
    UNRELEASED,
    WITHDRAWN,
    Entry,
)  # fmt: skip


@dataclass(frozen=True)
class NodeState:
    """One node. epoch: of the controller that last had it; token: the node's number in that epoch; boot_id: the newest that was seen.

    begun: the step without an end; done: steps done in this epoch. changed: apply was begun once, so that there is something to prove or to bring back.
    boots: (step, boot that was left) of each boot that this rollout has ordered, trial boots under `apply`. leaves: the boot that the next one is to leave.
    undoing: boots in which a rollback was begun; unsure: nobody knows what of it came back before this boot, so that what runs may not be what is installed.
    proofs: {step: boot in which it was passed}.
    failure: why it is not proved; stuck: why a node that is changed cannot be gone on with. state: of steps.MEANINGS; why: its reason.
    """

    host: str
    epoch: int = 0
    token: int = 0
    boot_id: str | None = None
    begun: str | None = None
    begun_at: str = ""
    done: frozenset[str] = frozenset()
    locked: bool = False
    drained: bool = False
    held: bool = False
    changed: bool = False
    applied: bool = False
    rebooted: bool = True
    leaves: str | None = None
    boots: tuple[tuple[str, str], ...] = ()
    proofs: Mapping[str, str] = field(default_factory=dict)
    failure: str | None = None
    stuck: str | None = None
    rolled_back: bool = False
    booted_back: bool = True
    undoing: tuple[str | None, ...] = ()
    unsure: bool = False
    as_before: bool | None = None
    giving_back: bool = False
    state: str = TO_COME
    why: str = ""

    @property
    def proved(self) -> bool:
        """Changed, and passed everything in the boot that it is in."""
        return self.changed and self.failure is None and all(self.proofs.get(step) == self.boot_id is not None for step in PROOFS)

    @property
    def touched(self) -> bool:
        """Something of ours may be on it, if only a lock."""
        return self.locked or self.drained or self.changed

    @property
    def out_of_service(self) -> bool:
        """By this rollout's doing, or by that of somebody who has drained it since."""
        return self.drained or self.held

    @property
    def lost(self) -> bool:
        """Changed, and neither proved nor brought back: nothing is to be changed anywhere until a person has looked."""
        return self.state == LOST or (self.changed and not self.proved and self.state in (TAKEN_OVER, NO_ANSWER, UNRELEASED, UNDER_WAY))


def follow(node: NodeState, entry: Entry, epoch: int) -> NodeState:
    """The node after one more entry about it, written by the controller of this epoch."""
    if epoch != node.epoch:
        node = _taken_up(node, epoch)
    if entry.status == BEGUN:
        return _begun(node, entry)
    node = replace(node, begun=None)
    if entry.status == DEFERRED:
        return _rest(node, POSTPONED, entry)
    if entry.status == SILENT:
        return _rest(node, NO_ANSWER, entry)
    if entry.status == FENCED:
        return _rest(node, TAKEN_OVER, entry)
    node = _seen_in(node, entry)
    if entry.status == DONE:
        return DONE_BY.get(entry.step, _nothing)(replace(node, done=node.done | {entry.step}), entry.evidence)
    return FAILED_BY.get(entry.step, _failed)(node, entry)


def _taken_up(node: NodeState, epoch: int) -> NodeState:
    """By the next controller. A node on which nothing was changed begins anew; what was changed stays changed."""
    node = replace(node, epoch=epoch, done=frozenset(), stuck=None, state=node.state if node.state in FINAL else UNDER_WAY)
    return node if node.changed else replace(node, failure=None, giving_back=False)


def _begun(node: NodeState, entry: Entry) -> NodeState:
    boot = entry.evidence.get("boot_id")
    node = replace(node, begun=entry.step, begun_at=entry.at, state=UNDER_WAY, why="")
    if entry.step == "lock":
        return replace(node, locked=True)  # whoever dies now may have locked it
    if entry.step == "drain":
        return replace(node, drained=True)
    if entry.step == "apply":
        return replace(node, changed=True)
    if entry.step == "roll_back":
        return replace(node, undoing=(*node.undoing, node.boot_id))
    if entry.step in ("reboot", "reboot_back") and isinstance(boot, str):
        return _count(node, entry.step, boot)
    if entry.step not in ("release", "keep"):
        return node
    # A node on which nothing was changed is given back because the brake stopped, or for its own failure: either is why.
    return replace(node, giving_back=True, failure=node.failure if node.changed else node.failure or entry.evidence.get("why") or None)


def _seen_in(node: NodeState, entry: Entry) -> NodeState:
    """Notes the boot that the node was seen in, and which boot of ours brought it there."""
    boot = entry.evidence.get("boot_id")
    if not isinstance(boot, str) or boot == node.boot_id:
        return node
    # A trial boot whose role failed is seen by the rollback that follows, or by the next controller.
    within_apply = entry.step == "apply" or (entry.step in ("lock", "roll_back") and node.changed and not node.applied and not node.rolled_back)
    if within_apply and node.boot_id is not None:
        node = _count(node, "apply", node.boot_id)
    return replace(node, boot_id=boot)


def _count(node: NodeState, step: str, left: str) -> NodeState:
    """A boot that was ordered again for the boot that it was to leave is the same one."""
    return node if (step, left) in node.boots else replace(node, boots=(*node.boots, (step, left)))


def _locked(node: NodeState, evidence: Mapping[str, Any]) -> NodeState:
    node = replace(node, token=evidence["fencing"])
    if node.changed:  # what has booted since it was proved is proved again before it is given back
        return node if node.failure or node.proved else replace(node, giving_back=False)
    return replace(node, failure=str(evidence["stale"])) if evidence.get("stale") else node


def _drained(node: NodeState, evidence: Mapping[str, Any]) -> NodeState:
    """A node that somebody else has drained is not for us to begin with; one that is changed already is out of service either way."""
    if evidence["owned"] or node.changed:
        return node
    return replace(node, failure=f"expected a node that nobody else has drained, found {evidence.get('by') or 'somebody'}: {evidence.get('reason') or '?'}")


def _applied(node: NodeState, evidence: Mapping[str, Any]) -> NodeState:
    return replace(node, applied=True, rebooted=not evidence["needs_reboot"], leaves=node.boot_id)


def _rolled_back(node: NodeState, evidence: Mapping[str, Any]) -> NodeState:
    """A rollback whose end nobody saw may have brought back everything: the one that is done now found nothing left, and says nothing about a boot."""
    unsure = node.boot_id in node.undoing[:-1]
    return replace(node, rolled_back=True, booted_back=not evidence["needs_reboot"], unsure=unsure, leaves=node.boot_id)


def _kept(node: NodeState, evidence: Mapping[str, Any]) -> NodeState:
    state = KEPT if node.as_before and not node.stuck else LOST
    return replace(node, locked=False, state=state, why="; ".join(filter(None, (node.failure, node.stuck))))


def _released(node: NodeState, evidence: Mapping[str, Any]) -> NodeState:
    held = str(evidence["held"]) if evidence.get("held") else ""
    if node.changed:
        return replace(node, locked=False, drained=False, held=bool(held), state=HELD if held else RELEASED, why=held)
    return replace(node, locked=False, drained=False, held=bool(held), giving_back=False, state=WITHDRAWN, why="; ".join(filter(None, (node.failure, held))))


def _proof(step: str) -> Any:
    return lambda node, evidence: replace(node, proofs={**node.proofs, step: evidence["boot_id"]})


def _nothing(node: NodeState, evidence: Mapping[str, Any]) -> NodeState:
    return node


DONE_BY: Mapping[str, Any] = {
    "lock": _locked,
    "drain": _drained,
    "apply": _applied,
    "reboot": lambda node, evidence: replace(node, rebooted=True),
    **{step: _proof(step) for step in PROOFS},
    "roll_back": _rolled_back,
    "reboot_back": lambda node, evidence: replace(node, booted_back=True, unsure=False),
    "audit_back": lambda node, evidence: replace(node, as_before=True),
    "keep": _kept,
    "release": _released,
}


def _failed(node: NodeState, entry: Entry) -> NodeState:
    return replace(node, failure=node.failure or _why(entry))


def _not_locked(node: NodeState, entry: Entry) -> NodeState:
    """A node that this rollout had drained or changed, and that another run has, is that run's now."""
    if not (node.changed or node.drained):
        return _rest(replace(node, locked=False), REFUSED, entry)
    return _rest(node, TAKEN_OVER if entry.evidence.get("holder") else NO_ANSWER, entry)


def _not_drained(node: NodeState, entry: Entry) -> NodeState:
    return replace(_failed(node, entry), stuck=_why(entry) if node.changed else None)


def _not_brought_back(node: NodeState, entry: Entry) -> NodeState:
    return replace(node, as_before=False, stuck=_why(entry))


def _not_kept(node: NodeState, entry: Entry) -> NodeState:
    return replace(node, state=LOST, why="; ".join(filter(None, (node.failure, node.stuck, _why(entry)))))


FAILED_BY: Mapping[str, Any] = {
    "lock": _not_locked,
    "drain": _not_drained,
    "wait": _not_drained,
    "roll_back": _not_brought_back,
    "reboot_back": _not_brought_back,
    "audit_back": _not_brought_back,
    "keep": _not_kept,
    "release": lambda node, entry: _rest(node, UNRELEASED, entry),
}


def _rest(node: NodeState, state: str, entry: Entry) -> NodeState:
    return replace(node, state=state, why=_why(entry))


def _why(entry: Entry) -> str:
    return f"{entry.step}: {entry.evidence.get('why') or 'no reason given'}"


def is_proved(node: NodeState) -> bool:
    """Proved healthy, whether or not it could be given back yet."""
    return node.state in (RELEASED, HELD) or (node.state in (UNRELEASED, UNDER_WAY) and node.proved)


def is_resting(node: NodeState) -> bool:
    """Nothing more is asked of it by this controller."""
    return node.state in FINAL or node.state in RESTING
