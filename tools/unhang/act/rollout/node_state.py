"""The state of each node of a rollout, from the journal only. Entries in, states out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from unhang.act.rollout.evidence import NO_SCHEDULER
from unhang.act.rollout.reasons import joined
from unhang.act.rollout.steps import (
    BEGUN,
    DEFERRED,
    DONE,
    FAILED,
    FENCED,
    FINAL,
    KEPT,
    LOST,
    MEANINGS,
    POSTPONED,
    PROOFS,
    PUT_OFF,
    RELEASED,
    SILENT,
    SMOKES,
    SOAK,
    TAKEN_OVER,
    TO_COME,
    UNFINISHED,
    WAIT,
    WAITING,
    WAITS,
    Entry,
    Evidence,
)  # fmt: skip

GONE = (
    "roll_back: this rollout has not saved the state {}: the node was reinstalled since, or its"
    " /var/lib/unhang was deleted"
)
AFTER_RELEASE = "proved and released, and it has failed since: a person has to look"
IN_SERVICE = "takes jobs again although it was left drained; seen at"
BY_OTHERS = "proved healthy; somebody else has drained it, and it stays drained"
LEFT = ", left drained"
RESTS = {
    SILENT: "it did not answer, or its answer was not understood",
    FAILED: "it could not be given back; it is still drained",
}


@dataclass(frozen=True)
class NodeState:
    """One node. epoch: of the last controller that handled it; token: of the node's lock in that
    epoch; boot_id: the latest known. begun: the step that has not ended; done: steps done in this
    epoch. changed: apply was begun once, so the node must be proved or rolled back. first: the
    latest apply began on an unchanged node. boots: (step, boot id before it) of each reboot that
    this rollout ordered, trial boots under `apply`. leaves: boot id that the next reboot replaces.
    boots_again: what was restored after the boot of a rollback needs one more. undoing: boots in
    which a rollback was begun; unsure: it is unknown how much of it was done before this boot, so
    the running system may differ from the installed one. saved: id of the first state that the
    change has saved on the node. proofs: {step: boot in which it passed}. failure: why the node is
    not proved; stuck: why a changed node cannot be completed. needs_root:
    the connecting user may not lock it. reserved: it waits and is not drained, for it runs a job.
    waits_since: since when its jobs are waited for.
    released_at: when it was released; asked_after: end of the soak after which it was asked again
    last; fell: a fault was found then. serves: when a kept or lost node was seen to take jobs.
    state: one of steps.MEANINGS; why: its reason. rests: of an
    unfinished node, the status after which this controller has no further step for it."""

    host: str
    epoch: int = 0
    token: int = 0
    boot_id: str | None = None
    begun: str | None = None
    done: frozenset[str] = frozenset()
    locked: bool = False
    drained: bool = False
    reserved: bool = False
    drained_by_others: bool = False
    changed: bool = False
    first: bool = False
    applied: bool = False
    rebooted: bool = True
    leaves: str | None = None
    boots: tuple[tuple[str, str], ...] = ()
    proofs: Mapping[str, str] = field(default_factory=dict)
    saved: str = ""
    failure: str | None = None
    stuck: str | None = None
    rolled_back: bool = False
    booted_back: bool = True
    boots_again: bool = False
    undoing: tuple[str | None, ...] = ()
    unsure: bool = False
    as_before: bool | None = None
    releasing: bool = False
    needs_root: bool = False
    waits_since: str = ""
    released_at: str = ""
    asked_after: str = ""
    fell: bool = False
    serves: str = ""
    state: str = TO_COME
    why: str = ""
    rests: str = ""

    @property
    def proved(self) -> bool:
        """Changed, and every proof passed in the current boot."""
        return (
            self.changed
            and self.failure is None
            and all(self.proofs.get(step) == self.boot_id is not None for step in PROOFS)
        )

    @property
    def touched(self) -> bool:
        """Whether something of this rollout, such as its lock, may be on the node."""
        return self.locked or self.drained or self.changed

    @property
    def out_of_service(self) -> bool:
        """Out of service because of this rollout, or because somebody has drained it since."""
        return (self.drained and not self.reserved) or self.drained_by_others

    @property
    def lost(self) -> bool:
        """Changed, and neither proved nor rolled back: no other node is changed until a person has
        checked this one."""
        return (self.state == LOST and not self.fell) or (
            self.changed and not self.proved and self.state in (TAKEN_OVER, UNFINISHED)
        )


def follow(node: NodeState, entry: Entry, epoch: int) -> NodeState:
    """The node's state after one more entry about it, written by the controller of this epoch."""
    if epoch != node.epoch:
        node = _taken_up(node, epoch)
    if entry.step == SOAK:
        return _asked_again(node, entry)
    if entry.status == BEGUN:
        return _begun(node, entry)
    node = replace(node, begun=None)
    if entry.status == DEFERRED:
        return _rest(node, POSTPONED, entry)
    if entry.status == SILENT:
        return _unfinished(node, SILENT, entry)
    if entry.status == FENCED:
        return _rest(node, TAKEN_OVER, entry)
    if entry.status == WAITS:
        return _waiting(node, entry)
    node = _seen_in(node, entry)
    if entry.status == DONE:
        node = DONE_BY.get(entry.step, lambda node, _: node)(
            replace(node, done=node.done | {entry.step}), entry.evidence
        )
        return (
            replace(node, released_at=entry.at)
            if entry.step == "release" and node.state == RELEASED
            else node
        )
    return FAILED_BY.get(entry.step, _failed)(node, entry)


def _asked_again(node: NodeState, entry: Entry) -> NodeState:
    """A released node after its soak: well as it was proved, or with a fault, for which it no
    longer counts as proved. Of a kept or lost one only whether it takes jobs is noted."""
    if "serves" in entry.evidence:
        return replace(node, serves=entry.at if entry.evidence["serves"] is True else "")
    node = replace(node, asked_after=str(entry.evidence.get("until") or node.asked_after))
    if entry.status == DONE:
        return replace(node, state=RELEASED, fell=False, why="") if node.fell else node
    return replace(node, state=LOST, fell=True, why=_reason(entry))


def _waiting(node: NodeState, entry: Entry) -> NodeState:
    """A node whose jobs have not ended: reserved, drained, or without a scheduler neither. One that
    this rollout has changed already must not have a job."""
    if node.changed:
        return _not_drained(node, entry)
    return replace(
        _rest(node, WAITING, entry),
        waits_since=node.waits_since or entry.at,
        reserved=entry.evidence.get("drained") is False,
        drained=entry.evidence.get("scheduler") != NO_SCHEDULER,
    )


def _taken_up(node: NodeState, epoch: int) -> NodeState:
    """The state for the next controller. A node without changes starts again; changes stay."""
    node = replace(
        node,
        epoch=epoch,
        done=frozenset(),
        stuck=None,
        state=node.state if node.state in FINAL else UNFINISHED,
        rests="",
    )
    return node if node.changed else replace(node, failure=None, releasing=False)


def _begun(node: NodeState, entry: Entry) -> NodeState:
    boot = entry.evidence.get("boot_id")
    node = replace(node, begun=entry.step, state=UNFINISHED, why="", rests="")
    if entry.step == "lock":
        return replace(node, locked=True)  # a controller that dies now may have locked the node
    if entry.step == "drain":  # one that runs a job stays reserved
        return replace(node, drained=True)
    if entry.step == "apply":
        return replace(node, changed=True, first=not node.changed)
    if entry.step == "roll_back":
        return replace(node, undoing=(*node.undoing, node.boot_id))
    if entry.step in ("reboot", "reboot_back") and isinstance(boot, str):
        return _count(node, entry.step, boot)
    if entry.step not in ("release", "keep"):
        return node
    # An unchanged node is released because of the failure limit or its own failure, a changed one
    # kept because its rollout was ended: that is the reason.
    why = str(entry.evidence.get("why") or "")
    return replace(
        node,
        releasing=True,
        failure=node.failure if node.changed else node.failure or why or None,
        why=why if node.changed else "",
    )


def _seen_in(node: NodeState, entry: Entry) -> NodeState:
    """Records the node's current boot, and the reboot of this rollout that led to it."""
    boot = entry.evidence.get("boot_id")
    if not isinstance(boot, str) or boot == node.boot_id:
        return node
    # If the role of a trial boot failed, the following rollback, or the next controller, records
    # the boot.
    within_apply = entry.step == "apply" or (
        entry.step in ("lock", "roll_back")
        and node.changed
        and not node.applied
        and not node.rolled_back
    )
    if within_apply and node.boot_id is not None:
        node = _count(node, "apply", node.boot_id)
    return replace(node, boot_id=boot)


def _count(node: NodeState, step: str, left: str) -> NodeState:
    """Counts a reboot. One that was ordered again in the same boot is counted once."""
    return node if (step, left) in node.boots else replace(node, boots=(*node.boots, (step, left)))


def _locked(node: NodeState, evidence: Evidence) -> NodeState:
    node = replace(node, token=evidence["fencing"])
    if node.changed:  # a node that has booted since its proof is proved again before its release
        return node if node.failure or node.proved else replace(node, releasing=False)
    return replace(node, failure=str(evidence["stale"])) if evidence.get("stale") else node


def _drained(node: NodeState, evidence: Evidence) -> NodeState:
    """Does not start a node that somebody else has drained; a changed node is out of service
    anyway. Without a scheduler the drain is itself the look for jobs."""
    node = replace(node, reserved=False)
    if evidence.get("scheduler") == NO_SCHEDULER:
        node = replace(node, done=node.done | {WAIT})
    if evidence["owned"] or node.changed:
        return node
    return replace(
        node,
        failure=(
            f"{evidence.get('by') or 'somebody'} has drained the node:"
            f" {evidence.get('reason') or '?'}"
        ),
    )


def _applied(node: NodeState, evidence: Evidence) -> NodeState:
    saved, boots = str(evidence.get("saved_state") or ""), evidence["needs_reboot"]
    return replace(node, applied=True, rebooted=not boots, leaves=node.boot_id, saved=saved)


def _rolled_back(node: NodeState, evidence: Evidence) -> NodeState:
    """The state after a rollback. A rollback without a recorded end may have restored everything:
    the repeated rollback then finds nothing to do and reports no needed reboot."""
    if node.saved and evidence.get("known") is False:
        return replace(node, rolled_back=True, as_before=False, stuck=GONE.format(node.saved))
    unsure = node.boot_id in node.undoing[:-1]
    return replace(
        node,
        rolled_back=True,
        booted_back=not evidence["needs_reboot"],
        unsure=unsure,
        leaves=node.boot_id,
    )


def _booted_back(node: NodeState, evidence: Evidence) -> NodeState:
    again = evidence.get("needs_reboot") is True
    return replace(
        node,
        booted_back=not again,
        boots_again=node.boots_again or again,
        unsure=False,
        leaves=node.boot_id,
    )


def _left_as_found(node: NodeState, evidence: Evidence) -> NodeState:
    state = KEPT if node.as_before and not node.stuck else LOST
    return replace(
        node,
        locked=False,
        state=state,
        why=node.why or joined(node.failure, node.stuck),
    )


def _released(node: NodeState, evidence: Evidence) -> NodeState:
    others = str(evidence["drained_by_others"]) if evidence.get("drained_by_others") else ""
    node = replace(node, locked=False, drained=False, drained_by_others=bool(others))
    if node.changed:
        return replace(node, state=RELEASED, why=others)
    why = joined(node.failure, others)
    return replace(node, state=POSTPONED, why=why, reserved=False, releasing=False, waits_since="")


def _proof(step: str) -> Any:
    """Where the smoke test is skipped, neither of them is asked for; the audit at the end is."""
    return lambda node, evidence: replace(
        node,
        proofs={
            **node.proofs,
            **dict.fromkeys(
                (step, *SMOKES) if "skipped" in evidence else (step,), evidence["boot_id"]
            ),
        },
    )


DONE_BY: Mapping[str, Any] = {
    "lock": _locked,
    "drain": _drained,
    "apply": _applied,
    "reboot": lambda node, evidence: replace(
        node, rebooted=not evidence.get("needs_reboot"), leaves=node.boot_id
    ),
    **{step: _proof(step) for step in PROOFS},
    "roll_back": _rolled_back,
    "reboot_back": _booted_back,
    "audit_back": lambda node, evidence: replace(node, as_before=True),
    "keep": _left_as_found,
    "release": _released,
}


def _failed(node: NodeState, entry: Entry) -> NodeState:
    return replace(node, failure=node.failure or _reason(entry))


def _not_locked(node: NodeState, entry: Entry) -> NodeState:
    """If another run has locked the node, and this rollout had drained or changed it, it belongs to
    that run now. Without another holder the step may have failed after it had locked the node, or
    an earlier controller's lock may still be there."""
    others = bool(entry.evidence.get("holder"))
    node = replace(node, needs_root=entry.evidence.get("needs_root") is True)
    if not (node.changed or node.drained):
        return _rest(replace(node, locked=node.locked and not others), POSTPONED, entry)
    return _rest(node, TAKEN_OVER, entry) if others else _unfinished(node, SILENT, entry)


def _not_drained(node: NodeState, entry: Entry) -> NodeState:
    return replace(_failed(node, entry), stuck=_reason(entry) if node.changed else None)


def _not_applied(node: NodeState, entry: Entry) -> NodeState:
    """The step checks that no job runs before it changes anything: a node that only fails that
    check is still unchanged, and so is one whose module says that it has touched nothing."""
    if entry.evidence.get("untouched") is True and node.first:
        return replace(_failed(node, entry), changed=False)
    if not _is_in_use(entry):
        return _failed(node, entry)
    return replace(_failed(node, entry), changed=False) if node.first else _not_drained(node, entry)


def _not_tested(node: NodeState, entry: Entry) -> NodeState:
    """No test beside a job, and no rollback of what was not tested."""
    return _not_drained(node, entry) if _is_in_use(entry) else _failed(node, entry)


def _not_booted(node: NodeState, entry: Entry) -> NodeState:
    """As _not_applied; a reboot that was not ordered does not count."""
    if entry.evidence.get("untouched") is True:
        node = _without_boot(node, entry)  # somebody else has booted the node
    if not _is_in_use(entry):
        return _failed(node, entry)
    return _not_drained(_without_boot(node, entry), entry)


def _not_released(node: NodeState, entry: Entry) -> NodeState:
    """A boot that was not ordered ends the proof, so no other node is changed before this one was
    proved again."""
    if entry.evidence.get("untouched") is True:
        node = replace(node, proofs={})
    return _unfinished(node, FAILED, entry)


def _without_boot(node: NodeState, entry: Entry) -> NodeState:
    boots = tuple(one for one in node.boots if one != (entry.step, node.leaves))
    return replace(node, boots=boots)


def _is_in_use(entry: Entry) -> bool:
    """Whether the step ended because a job runs on the node, the drain was ended, or neither is
    known."""
    return entry.evidence.get("free") is False


def _not_brought_back(node: NodeState, entry: Entry) -> NodeState:
    return replace(node, as_before=False, stuck=_reason(entry))


def _not_kept(node: NodeState, entry: Entry) -> NodeState:
    """No final state, so that the next controller tries again: a scheduler that was away must not
    leave the lock on the node for ever."""
    return replace(
        node,
        state=UNFINISHED,
        rests=FAILED,
        why=joined(node.failure, node.stuck, _reason(entry)),
    )


FAILED_BY: Mapping[str, Any] = {
    "lock": _not_locked,
    "drain": _not_drained,
    "wait": _not_drained,
    "apply": _not_applied,
    "reboot": _not_booted,
    "smoke_alone": _not_tested,
    "smoke_together": _not_tested,
    "roll_back": _not_brought_back,
    "reboot_back": _not_brought_back,
    "audit_back": _not_brought_back,
    "keep": _not_kept,
    "release": _not_released,
}


def _rest(node: NodeState, state: str, entry: Entry) -> NodeState:
    return replace(node, state=state, why=joined(_reason(entry)), rests="")


def _unfinished(node: NodeState, rests: str, entry: Entry) -> NodeState:
    return replace(_rest(node, UNFINISHED, entry), rests=rests)


def _reason(entry: Entry) -> str:
    return f"{entry.step}: {entry.evidence.get('why') or 'no reason given'}"


def is_proved(node: NodeState) -> bool:
    """Proved healthy, whether or not it could be released yet; one that is silent since is not."""
    return node.state == RELEASED or (
        node.state == UNFINISHED and node.proved and node.rests != SILENT
    )


def meaning_of(node: NodeState) -> str:
    """The node's state in words."""
    if node.fell:
        return AFTER_RELEASE
    if node.state == RELEASED and node.drained_by_others:
        return BY_OTHERS
    if node.state == WAITING and node.drained:
        how = "reserved in Slurm" if node.reserved else "drained"
        return f"{how}; {MEANINGS[WAITING]}"
    if node.serves:
        return f"{MEANINGS[node.state].partition(LEFT)[0]}, {IN_SERVICE} {node.serves}"
    return RESTS[node.rests] if _rests_unfinished(node) else MEANINGS[node.state]


def is_resting(node: NodeState) -> bool:
    """This controller has no further step for it."""
    return node.state in FINAL or node.state in PUT_OFF or _rests_unfinished(node)


def _rests_unfinished(node: NodeState) -> bool:
    return node.state == UNFINISHED and bool(node.rests)
