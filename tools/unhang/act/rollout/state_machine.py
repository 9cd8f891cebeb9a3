"""Makes all decisions of a rollout: the next step of a node, and the meaning of its answer. States
and answers in, orders and entries out. The playbook's action plugins call it, and so does the
simulation in the tests; neither decides anything by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unhang.act.plan.applicable import AGAIN
from unhang.act.rollout.node_state import NodeState, is_resting
from unhang.act.rollout.reasons import joined
from unhang.act.rollout.steps import (
    DONE,
    FAILED,
    FENCED,
    FINAL,
    PROOFS,
    REBOOTS,
    SILENT,
    WAIT,
    WAITS,
    Evidence,
    Order,
    StepResult,
    Target,
)
from unhang.core.text import brief

MOST_BOOTS_BACK = 1
# by this rollout's reboot or by somebody else, which the reason in brackets says
SHUTTING_DOWN = (
    "the node is shutting down (systemctl list-jobs on it names what holds it up), in the boot"
)


def next_order(
    node: NodeState, target: Target, epoch: int, stopped: str | None = None, ending: str = ""
) -> Order | None:
    """The next order of the controller of this epoch for the node, None if there is none. stopped:
    why the failure limit allows no further change. ending: why the rollout ends here, "" if it goes
    on: a changed node that is not proved is then kept drained as it is."""
    if node.state in FINAL or (node.epoch == epoch and is_resting(node)):
        return None
    if ending and node.changed and not node.proved:
        node = replace(node, stuck=node.stuck or ending)
    if node.epoch != epoch or "lock" not in node.done:
        return _lock(node, target, stopped)
    step, why = (
        _changed(node, target) if node.changed else _unchanged(node, stopped or target.refused)
    )
    if step == "drain" and stopped:
        return None  # of a changed node that is in service: the floor leaves no room for it
    boot = node.leaves if step in REBOOTS else node.boot_id
    if step == "release" and not node.changed:
        boot = None  # nothing was proved, so the order is valid in any boot
    again = step in REBOOTS and (step, node.leaves) in node.boots
    return Order(node.host, step, node.token, boot, _reboots_left(node, target, step), why, again)


def refusal(node: NodeState, target: Target) -> str | None:
    """The reason why a node is not started: its plan is no longer valid. A node that this rollout
    has changed is completed anyway."""
    return None if node.touched else target.refused


def _lock(node: NodeState, target: Target, stopped: str | None) -> Order | None:
    if not node.touched and (stopped or target.refused):
        return None
    return Order(node.host, "lock", node.token, None if node.changed else target.boot_id)


def _unchanged(node: NodeState, stopped: str | None) -> tuple[str, str]:
    """The next step of an unchanged node: if there is a reason to stop, it is released, because
    there is nothing to roll back."""
    why = node.failure or stopped
    if why or node.releasing:
        return "release", why or ""
    return next(
        ((step, "") for step in ("drain", "wait", "save") if step not in node.done),
        ("apply", ""),
    )


def _changed(node: NodeState, target: Target) -> tuple[str, str]:
    why = joined(node.failure, node.stuck)
    if node.releasing:
        return ("keep", why) if why else ("release", "")
    if node.stuck:
        return "keep", why
    for step in ("drain", "wait"):
        if step not in node.done:
            return step, ""
    return (_step_back(node, target), why) if node.failure else (_step_forward(node), "")


def _step_forward(node: NodeState) -> str:
    if not node.applied:
        return "apply"
    if not node.rebooted:
        return "reboot"
    return next((step for step in PROOFS if node.proofs.get(step) != node.boot_id), "release")


def _step_back(node: NodeState, target: Target) -> str:
    if not node.rolled_back:
        return "roll_back"
    if not node.booted_back or (node.unsure and target.boots_back):
        return "reboot_back"
    return "audit_back" if node.as_before is None else "keep"


def _reboots_left(node: NodeState, target: Target, step: str) -> int:
    """The number of reboots that the step may still order. A reboot that was ordered in the current
    boot does not count twice."""
    if step == "reboot_back":
        return (
            MOST_BOOTS_BACK
            + node.boots_again
            - sum(1 for kind, left in node.boots if kind == "reboot_back" and left != node.leaves)
        )
    is_repeated = step == "reboot" and ("reboot", node.leaves) in node.boots
    return (
        target.reboots - sum(1 for kind, _ in node.boots if kind != "reboot_back") + is_repeated
        if step in ("apply", "reboot")
        else 0
    )


def may_act(order: Order) -> str | None:
    """The reason why an order cannot be carried out (the plan allows no further reboot), or
    None."""
    if order.step in REBOOTS and order.reboots_left < 1:
        return "the plan allows no further reboot: the node has been booted as often as planned"
    return None


def judge(order: Order, result: StepResult, target: Target) -> tuple[str, dict[str, Any]]:
    """(status, evidence) of the entry that ends a step. A node's own report counts only with its
    evidence: ok without evidence has failed."""
    evidence = dict(result.evidence)
    if result.status in (SILENT, FENCED):
        return result.status, evidence
    if order.step in REBOOTS and evidence.get("shutting_down") is True:
        return SILENT, evidence | {"why": f"{SHUTTING_DOWN} {order.boot_id} ({evidence['why']})"}
    # also where the drain has found them: the scheduler keeps the node free from their end
    if (
        order.step in ("drain", WAIT)
        and result.status == "ok"
        and evidence.get("jobs")
        and evidence.get("over") is False
    ):
        return WAITS, evidence | {
            "why": (
                f"job {_jobs_of(evidence)} until {evidence.get('until') or 'it ends'} at the latest"
            )
        }
    why = None if result.status == "ok" else str(evidence.get("why") or "no reason given")
    why = (
        why
        or _missing(order, evidence)
        or CHECKS.get(order.step, lambda *_: None)(order, evidence, target)
    )
    if why:
        return FAILED, evidence | {"why": why}
    return DONE, evidence | (
        {"stale": stale}
        if order.step == "lock" and (stale := _booted_since(order, evidence))
        else {}
    )


NEEDED: Mapping[str, Mapping[str, type]] = {
    "lock": {"fencing": int, "boot_id": str},
    "drain": {"drained": bool, "owned": bool},
    "wait": {"jobs": list},
    "apply": {"boot_id": str, "needs_reboot": bool},
    "reboot": {"boot_id": str, "running": dict},
    **{step: {"boot_id": str, "healthy": bool} for step in (*PROOFS, "audit_back")},
    "roll_back": {"boot_id": str, "needs_reboot": bool},
    "reboot_back": {"boot_id": str},
    "release": {"drained": bool, "owned": bool},
}


def needs_boot_id(step: str, evidence: Evidence) -> bool:
    """Whether the boot in which a step has ended is still to be read for its evidence."""
    return "boot_id" not in evidence and "boot_id" in NEEDED.get(step, {})


def _missing(order: Order, evidence: Evidence) -> str | None:
    for name, kind in NEEDED.get(order.step, {}).items():
        if type(evidence.get(name)) is not kind:
            return f"the answer to {order.step} must have {name}, and has {brief(found) if isinstance(found := evidence.get(name), (dict, list)) else repr(found)}"  # noqa: E501
    return None


def _booted_since(order: Order, evidence: Evidence) -> str | None:
    if order.boot_id in (None, evidence["boot_id"]):
        return None
    return (
        f"the node has booted since the plan was made: its boot is {evidence['boot_id']}, not"
        f" {order.boot_id}; {AGAIN}"
    )


def _drained(order: Order, evidence: Evidence, target: Target) -> str | None:
    return _no_jobs(order, evidence, target) or (
        None
        if evidence["drained"]
        else (
            "the node is not drained, but in service:"
            f" {evidence.get('reason') or 'no reason given'}"
        )
    )


def _no_jobs(order: Order, evidence: Evidence, target: Target) -> str | None:
    if not evidence.get("jobs"):
        return None
    until = f" by {evidence['until']}" if evidence.get("until") else ""
    return f"the node still has jobs{until}: {_jobs_of(evidence)}"


def _jobs_of(evidence: Evidence) -> str:
    return ", ".join(map(str, evidence["jobs"]))


def _booted(order: Order, evidence: Evidence, target: Target) -> str | None:
    if evidence["boot_id"] == order.boot_id:
        return f"the node did not reboot: its boot is {order.boot_id} as before"
    if order.step == "reboot_back" or evidence.get("needs_reboot"):
        return None
    wrong = [
        f"{name} is {evidence['running'].get(name)}, not {wanted}"
        for name, wanted in target.running.items()
        if evidence["running"].get(name) != wanted
    ]
    return f"after the reboot {'; '.join(wrong)}" if wrong else None


def _healthy(order: Order, evidence: Evidence, target: Target) -> str | None:
    if evidence["boot_id"] != order.boot_id:
        return (
            f"the node booted while it was proved: its boot is {evidence['boot_id']}, not"
            f" {order.boot_id}"
        )
    return (
        None
        if evidence["healthy"]
        else str(evidence.get("why") or "the node is not proved healthy")
    )


def _released(order: Order, evidence: Evidence, target: Target) -> str | None:
    if order.boot_id not in (None, evidence.get("boot_id")):
        return (
            f"the node's boot is {evidence.get('boot_id')}, not {order.boot_id}, in which it was"
            " proved"
        )
    if evidence["drained"] and evidence["owned"]:
        return "the node is not in service: this rollout still drains it"
    if evidence["drained"] and not evidence.get("drained_by_others"):
        return "the answer does not say who has drained the node"
    return None


CHECKS: Mapping[str, Any] = {
    "drain": _drained,
    "wait": _no_jobs,
    "reboot": _booted,
    "reboot_back": _booted,
    **dict.fromkeys((*PROOFS, "audit_back"), _healthy),
    "release": _released,
}
