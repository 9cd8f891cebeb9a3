"""Where each node of a rollout stands, what comes next, and what it came to: by the plan and the journal alone. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from unhang.plan.plan_document import HostPlan, Plan
from unhang.rollout.journal_text import JournalText
from unhang.rollout.machine import next_order
from unhang.rollout.node_state import NodeState, Replayed, replay
from unhang.rollout.steps import BEGUN, DONE, FINAL, KEPT, LOST, MEANINGS, ROLLOUT, TAKEN_OVER, TO_COME, UNRELEASED, Entry
from unhang.rollout.targets import target_of

SCHEMA = "unhang/rollout-status/1"
BOOTS = {"apply": "trial boot", "reboot": "reboot", "reboot_back": "reboot of the rollback"}
NEXT_OF = {
    KEPT: "a person looks why; audit it and make a new plan, then resume it in the scheduler",
    LOST: "a person repairs it; playbooks/rollback.yml may be started again; then resume it in the scheduler",
    TAKEN_OVER: "see the run that has it: /var/lib/unhang/lock.json on the node",
    UNRELEASED: "started again, the same command tries to give it back",
}


def status_of(plan: Plan, journal: JournalText) -> dict[str, Any]:
    """{schema, run, controller, ended, stopped, torn, counts, waves: [{name, hosts}], hosts: [row]}; a row of each host in the waves, in their order."""
    replayed = replay(journal.entries)
    rows = [_row(wave.name, plan.by_host[host], replayed, journal.entries) for wave in plan.waves for host in wave.hosts]
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["state"]] = counts.get(row["state"], 0) + 1
    begun = next((one for one in reversed(journal.entries) if not one.host and one.step == ROLLOUT and one.status == BEGUN), None)
    controller = None if begun is None else {"number": begun.token, "by": str(begun.evidence.get("by") or ""), "began": begun.at}
    return {
        "schema": SCHEMA,
        "run": plan.run.id,
        "controller": controller,
        "ended": replayed.ended,
        "stopped": replayed.stopped,
        "torn": [f"line {number}: {text}" for number, text in journal.torn],
        "counts": counts,
        "waves": [{"name": wave.name, "hosts": list(wave.hosts)} for wave in plan.waves],
        "hosts": rows,
    }


def exit_code(status: Mapping[str, Any]) -> int:
    """0 every node is proved and given back (or held by somebody else); 1 not yet, or not all."""
    return 0 if all(row["state"] in ("released", "held") for row in status["hosts"]) else 1


def _row(wave: str, entry: HostPlan, replayed: Replayed, entries: Sequence[Entry]) -> dict[str, Any]:
    node, own = replayed.node(entry.host), [one for one in entries if one.host == entry.host]
    return {
        "host": entry.host,
        "wave": wave,
        "state": node.state,
        "meaning": MEANINGS[node.state],
        "why": node.why or node.failure or "",
        "step": node.begun,
        "since": own[-1].at if own else None,
        "next": what_next(node, entry),
        "boots": [f"{BOOTS[step]}, out of {left}" for step, left in node.boots],
        "drained": node.out_of_service,
        "locked": node.locked,
        "before": {one.role: one.before for one in entry.remedies if one.before},
        "wanted": {one.role: one.after for one in entry.remedies if one.after},
        "running": _last(own, "audit", "running") or {},
        "gone": _last(own, "audit", "gone") or [],
        "left": _last(own, "audit", "left") or [],
        "saved_state": _last(own, "apply", "saved_state") or "",
    }


def what_next(node: NodeState, entry: HostPlan) -> str:
    """What the same command does on the node when it is started again, in a line."""
    if node.state in NEXT_OF:
        return NEXT_OF[node.state]
    if node.state in FINAL:
        return ""
    if node.state == TO_COME:
        return "lock, when its wave is let begin"
    taken = replace(node, epoch=1, state=TO_COME, begun=None, done=frozenset(("lock", "drain", "wait")))
    order = next_order(taken, target_of(entry), 1)
    return f"lock, then {order.step}" if order is not None else ""


def _last(entries: Sequence[Entry], step: str, key: str) -> Any:
    return next((one.evidence[key] for one in reversed(entries) if one.step == step and one.status == DONE and key in one.evidence), None)
