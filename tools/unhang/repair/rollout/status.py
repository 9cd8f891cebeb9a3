"""The status of a rollout, from the plan and the journal alone: the state of each node, what comes next, and the outcome. Values in, values out."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unhang.repair.plan.plan_document import HostPlan, Plan
from unhang.repair.rollout.bandwidth import rates_of, span_of
from unhang.repair.rollout.journal_text import JournalText
from unhang.repair.rollout.node_state import NodeState
from unhang.repair.rollout.rollout_state import RolloutState, replay
from unhang.repair.rollout.state_machine import next_order
from unhang.repair.rollout.steps import (
    BEFORE,
    BEGUN,
    DONE,
    DRAINED_BY_OTHERS,
    FINAL,
    KEPT,
    LOST,
    MEANINGS,
    REFUSED,
    RELEASED,
    ROLLOUT,
    TAKEN_OVER,
    TO_COME,
    UNRELEASED,
    WAITING,
    Entry,
)
from unhang.repair.rollout.targets import target_of
from unhang.repair.rollout.waiting import until_words

MEASURED, FAILED_BEFORE, UNMEASURED = "passed", "failed", "not measured"
SCHEMA = "unhang/rollout-status/1"
PROVED_HEALTHY = (RELEASED, DRAINED_BY_OTHERS)
BOOTS = {"apply": "trial boot", "reboot": "reboot", "reboot_back": "reboot of the rollback"}
NEXT_OF = {
    WAITING: "its jobs end, then the same command goes on with it; --end releases it as it is",
    KEPT: "a person looks why and repairs it; then audit and plan: the new rollout takes over its drain, proves it and releases it",
    LOST: "unhang remediate --undo RUN brings it back, or a person repairs it; then audit and plan: the new rollout takes over its drain",
    TAKEN_OVER: "see the run that has it: /var/lib/unhang/lock.json on the node",
    UNRELEASED: "started again, the same command tries to give it back",
}


def status_of(plan: Plan, journal: JournalText, undo: str = "", is_over: Callable[[Mapping[str, Any]], bool | None] = lambda _: None) -> dict[str, Any]:
    """The document unhang/rollout-status/1: the state of each host of the waves, in their order, and the rollout's outcome; its evidence, once it has ended.

    is_over: whether the process of a controller, by the evidence of its beginning, has ended; None if that is not known.
    undo: the command that undoes the rollout; "" for none. It gets the options with which the newest controller reached the nodes.
    """
    replayed = replay(journal.entries)
    by_host: dict[str, list[Entry]] = {}
    for one in journal.entries:
        by_host.setdefault(one.host, []).append(one)
    begun = next((one for one in reversed(journal.entries) if not one.host and one.step == ROLLOUT and one.status == BEGUN), None)
    options = shlex.join(f"--ansible={word}" for word in (begun.evidence.get("options") if begun is not None else None) or ())
    undo = f"{undo} {options}".strip() if undo else ""
    rows = [_row(wave.name, plan.by_host[host], replayed, by_host.get(host, []), undo) for wave in plan.waves for host in wave.hosts]
    controller = None
    if begun is not None:
        controller = {"number": begun.token, "by": str(begun.evidence.get("by") or ""), "began": begun.at, **_alive(is_over(begun.evidence))}
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["state"]] = counts.get(row["state"], 0) + 1
    return {
        "schema": SCHEMA,
        "run": plan.run.id,
        "controller": controller,
        "ended": replayed.ended,
        "stopped": replayed.stopped,
        "torn": [f"line {number}: {text}" for number, text in journal.torn],
        "counts": counts,
        "waves": [{"name": wave.name, "hosts": list(wave.hosts)} for wave in plan.waves],
        "fleet": fleet_of(rows),
        "undo": undo if any(row["undo"] for row in rows) else "",
        "person": [{"host": entry.host, "rule": one.rule, "what": one.what} for entry in plan.hosts for one in entry.person],
        "hosts": rows,
    }


def _alive(is_over: bool | None) -> dict[str, bool]:
    return {} if is_over is None else {"alive": not is_over}


def undo_command(program: str, run: str, inventories: Sequence[str] = ()) -> str:
    """The command that undoes the rollout of a run. program: unhang, as typed; inventories: values of `-i`, if others than the run's."""
    given = [word for inventory in inventories for word in ("-i", inventory)]
    return f"{program} {shlex.join(['remediate', '--undo', run, *given])}"


def exit_code(status: Mapping[str, Any]) -> int:
    """0 if every node is proved and released (or drained by others), else 1."""
    return 0 if all(row["state"] in PROVED_HEALTHY for row in status["hosts"]) else 1


def _row(wave: str, entry: HostPlan, replayed: RolloutState, own: Sequence[Entry], undo: str) -> dict[str, Any]:
    node = replayed.node(entry.host)
    audited = (
        {} if node.rolled_back else {key: _last(own, "audit", key) for key in ("running", "gone", "left")}
    )  # a rollback undoes the changes after the audit
    gone, left = audited.get("gone") or [], audited.get("left") or []
    planned = {rule for one in entry.remedies for rule in one.because} | {one.rule for one in entry.person}
    state = _last(own, "apply", "saved_state") or ""
    return {
        "host": entry.host,
        "wave": wave,
        "state": node.state,
        "meaning": MEANINGS[node.state],
        "why": node.why or node.failure or "",
        "step": node.begun,
        "since": own[-1].at if own else None,
        "until": _until(own) if node.begun else "",
        "next": what_next(node, entry),
        "boots": [f"{BOOTS[step]}, out of {left}" for step, left in node.boots],
        "drained": node.out_of_service,
        "locked": node.locked,
        "before": {one.role: one.before for one in entry.remedies if one.before},
        "wanted": {one.role: one.after for one in entry.remedies if one.after},
        "running": audited.get("running") or {},
        "found": sorted({*planned, *gone, *left}),
        "gone": gone,
        "left": left,
        "smoke_before": smoke_before(own),
        "bandwidth_alone": [] if node.rolled_back else _last(own, "smoke_alone", "bandwidth") or [],
        "bandwidth": _last(own, "smoke_together", "bandwidth") or _last(own, "smoke_alone", "bandwidth") or [],
        "saved_state": state,
        "undo": f"{undo} --host {shlex.quote(entry.host)}" if undo and state and not node.rolled_back else "",
    }


def fleet_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The totals of the rows: {nodes, proved_healthy, boots, findings: {found, gone}, before: {passed, failed, not_measured}, and of the bandwidth of the nodes

    bandwidth_before, bandwidth_alone, bandwidth: [{op, size_bytes, nodes, lowest_gb_s, highest_gb_s}]}.
    """
    verdicts, rates = [row["smoke_before"]["verdict"] for row in rows], [rates_of(row) for row in rows]
    return {
        "nodes": len(rows),
        "proved_healthy": sum(row["state"] in PROVED_HEALTHY for row in rows),
        "boots": sum(len(row["boots"]) for row in rows),
        "findings": {"found": sum(len(row["found"]) for row in rows), "gone": sum(len(row["gone"]) for row in rows)},
        "before": {name.replace(" ", "_"): verdicts.count(name) for name in (MEASURED, FAILED_BEFORE, UNMEASURED)},
        "bandwidth_before": span_of(one["before"] for one in rates),
        "bandwidth_alone": span_of(one["alone"] for one in rates),
        "bandwidth": span_of(one["last"] for one in rates),
    }


def smoke_before(own: Sequence[Entry]) -> dict[str, Any]:
    """{verdict, why, bandwidth} of the node's latest measurement before the change."""
    last = next((one.evidence for one in reversed(own) if one.step == BEFORE and one.status == DONE), {})
    verdict = MEASURED if last.get("healthy") is True else FAILED_BEFORE if last.get("why") else UNMEASURED
    return {"verdict": verdict, "why": str(last.get("why") or last.get("skipped") or ""), "bandwidth": list(last.get("bandwidth") or ())}


def what_next(node: NodeState, entry: HostPlan) -> str:
    """The next action of the same command on the node if it is run again, in one line."""
    if node.state == UNRELEASED and not node.proved and not node.failure and node.changed:
        return "it stays drained, for it has booted since its proof; started again, the same command proves it again, then gives it back"
    if node.state in NEXT_OF:
        return NEXT_OF[node.state]
    if node.state in FINAL:
        return ""
    if node.state == TO_COME:
        return "lock, when its wave may begin"
    if node.state == REFUSED and node.needs_root:
        return "started again with root on the node, the same command locks it: --ansible=--become, or ansible_become: true in the inventory"
    taken = replace(node, epoch=1, state=TO_COME, begun=None, done=frozenset(("lock", "drain", "wait")))
    order = next_order(taken, target_of(entry), 1)
    return f"lock, then {order.step}" if order is not None else ""


def _until(own: Sequence[Entry]) -> str:
    """The deadline of the step that was begun last."""
    return str(next((one.evidence.get("until") or "" for one in reversed(own) if one.status == BEGUN), ""))


def step_now(row: Mapping[str, Any]) -> str:
    """The current step of a node as text; "" for none."""
    until = until_words(row["step"], row["until"]) if row["step"] else ""
    return f"in step {row['step']} since {row['since']}{', ' if until else ''}{until}" if row["step"] else ""


def _last(entries: Sequence[Entry], step: str, key: str) -> Any:
    return next((one.evidence[key] for one in reversed(entries) if one.step == step and one.status == DONE and key in one.evidence), None)
