"""The status of a rollout, from the plan and the journal alone: the state of each node, what comes
next, and the outcome. Values in, values out."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from unhang.act.plan.applicable import AGAIN
from unhang.act.plan.plan_document import HostPlan, Plan
from unhang.act.rollout.bandwidth import rates_of, span_of
from unhang.act.rollout.journal_text import JournalText
from unhang.act.rollout.node_state import NodeState, meaning_of
from unhang.act.rollout.reasons import describe_edit, joined
from unhang.act.rollout.rollout_state import RolloutState, replay
from unhang.act.rollout.state_machine import next_order
from unhang.act.rollout.steps import (
    BEGUN,
    DONE,
    FAILED,
    FINAL,
    KEPT,
    LOST,
    POSTPONED,
    RELEASED,
    SILENT,
    SOAK,
    TAKEN_OVER,
    TO_COME,
    UNDONE,
    UNFINISHED,
    WAITING,
    Entry,
)
from unhang.act.rollout.targets import target_of
from unhang.act.rollout.undone import Undone
from unhang.act.rollout.waiting import until_words
from unhang.core.text import counted, visible

SCHEMA = "unhang/rollout-status/1"
TAKES_OVER = re.compile(r"-e unhang_take_over=(\S+)")
DOES = {
    "drain": "drains the node",
    "wait": "waits for its jobs",
    "save": "keeps its findings of before",
    "apply": "changes it",
    "reboot": "reboots it",
    "audit": "audits it",
    "smoke_alone": "tests it alone",
    "smoke_together": "tests it with the others of its wave",
    "audit_again": "audits it once more",
    "roll_back": "rolls it back",
    "reboot_back": "reboots it after the rollback",
    "audit_back": "audits it after the rollback",
    "keep": "keeps it drained with the reason",
    "release": "releases it",
}
NOW = {
    "lock": "being locked",
    "drain": "being drained",
    "wait": "waiting for its jobs to end",
    "save": "keeping its findings of before",
    "apply": "being changed",
    "reboot": "rebooting",
    "audit": "being audited",
    "smoke_alone": "in the smoke test, alone",
    "smoke_together": "in the smoke test, with others of its wave",
    "audit_again": "being audited once more",
    "roll_back": "being rolled back",
    "reboot_back": "rebooting after the rollback",
    "audit_back": "being audited after the rollback",
    "keep": "being kept drained",
    "release": "being released",
    SOAK: "back in service, soaking",
}
BOOTS = {"apply": "trial boot", "reboot": "reboot", "reboot_back": "reboot of the rollback"}
MOST_TO_LOOK_AT = 4
MOST_WAITING = 4
LOST_JOURNAL = "the journal of this rollout was lost"
UNKNOWN = {
    "state": UNFINISHED,
    "meaning": f"not known, for {LOST_JOURNAL}: it may have been changed",
    "next": (
        "the same command with --apply asks the node what it has kept, and goes on from there; with"
        " --end it does so and ends the rollout"
    ),
}
NEXT_OF = {
    WAITING: (
        "when its jobs have ended, the same command goes on with it; --end releases it as it is"
    ),
    KEPT: (
        "a person looks why and repairs it; then audit and plan: the new rollout takes over its"
        " drain, proves it and releases it"
    ),
    LOST: (
        "unhang remediate --undo RUN brings it back, or a person repairs it; then audit and plan:"
        " the new rollout takes over its drain and proves it, which this one's command never does"
    ),
    TAKEN_OVER: "see the run that has it: /var/lib/unhang/lock.json on the node",
}


def status_of(
    plan: Plan,
    journal: JournalText,
    undo: str = "",
    is_over: Callable[[Mapping[str, Any]], bool | None] = lambda _: None,
    lost: int = 0,
    is_own: bool = True,
    undone: Mapping[str, Undone] = MappingProxyType({}),
) -> dict[str, Any]:
    """The document unhang/rollout-status/1: the state of each host of the waves, in their order,
    and the rollout's outcome; its evidence, once it has ended.

    is_over: whether the process of a controller, by the evidence of its beginning, has ended; None
    if that is not known.
    lost: how many controllers have written a journal that is gone; nothing is then known about any
    node.
    undo: the command that undoes the rollout; "" for none. It gets the options with which the
    newest controller reached the nodes.
    undone: what undos have brought back on which host, also those of other runs.
    is_own: whether the run is known as this user's own; no command is made of what another one
    says.
    """
    replayed = replay(journal.entries)
    begun = replayed.begun
    runs = begun is not None and not replayed.ended and is_over(begun.evidence) is False
    by_host: dict[str, list[Entry]] = {}
    for one in journal.entries:
        by_host.setdefault(one.host, []).append(one)
    options = shlex.join(
        f"--ansible={word}"
        for word in (begun.evidence.get("options") if begun is not None else None) or ()
    )
    undo = f"{undo} {options}".strip() if undo and is_own else ""
    is_lost = bool(lost) or replayed.is_lost
    planned = (
        plan.by_host
        if is_own
        else {host: replace(one, scheduler=None) for host, one in plan.by_host.items()}
    )
    rows = [
        _row(wave.name, planned[host], replayed, by_host.get(host, []), undo, runs)
        for wave in plan.waves
        for host in wave.hosts
    ]
    rows = [_with_undo(row, undone.get(row["host"])) for row in rows]
    rows = [{**row, **UNKNOWN} if is_lost and row["state"] == TO_COME else row for row in rows]
    controller = None
    if begun is not None:
        controller = {
            "number": begun.token,
            "by": str(begun.evidence.get("by") or ""),
            "began": begun.at,
            **_alive(is_over(begun.evidence)),
        }
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["state"]] = counts.get(row["state"], 0) + 1
    return {
        "schema": SCHEMA,
        "run": plan.run.id,
        "controller": controller,
        "ended": replayed.ended,
        "stopped": replayed.stopped,
        "closed": replayed.closed or "",
        "policy_edited": policy_edited(begun),
        "torn": [
            *_lost(is_lost, replayed),
            *(f"line {number}: {text}" for number, text in journal.torn),
        ],
        "counts": counts,
        "waves": [{"name": wave.name, "hosts": list(wave.hosts)} for wave in plan.waves],
        "fleet": fleet_of(rows),
        "undo": undo if any(row["undo"] for row in rows) else "",
        "person": [
            {"host": entry.host, "rule": one.rule, "what": one.what}
            for entry in plan.hosts
            for one in entry.person
        ],
        "hosts": rows,
    }


def _with_undo(row: dict[str, Any], undone: Undone | None) -> dict[str, Any]:
    """The row of a node with what was undone on it, which is not undone again. Nothing that the
    rollout came to is left there."""
    if undone is None:
        return {**row, "undone": ""}
    came_to: dict[str, Any] = {
        "state": UNDONE,
        "meaning": "what the rollout changed was undone",
        "next": "",
    }
    came_to |= {"gone": [], "left": [], "running": {}}
    return {
        **row,
        **(came_to if row["state"] == RELEASED else {}),
        "undone": str(undone),
        "undo": "",
    }


def _lost(is_lost: bool, replayed: RolloutState) -> list[str]:
    """That an earlier journal was lost, as a line."""
    if is_lost:
        return [f"{LOST_JOURNAL}: journal.lock beside it says that this rollout has begun"]
    return [str(replayed.rebuilt.evidence.get("why"))] if replayed.rebuilt is not None else []


def policy_edited(begun: Entry | None) -> str:
    """What the newest controller saw of an edit of the inventory's policy; "" for none."""
    hosts = begun.evidence.get("policy_edited") if begun is not None else None
    return describe_edit([str(host) for host in hosts]) if isinstance(hosts, list) else ""


def _alive(is_over: bool | None) -> dict[str, bool]:
    return {} if is_over is None else {"alive": not is_over}


def undo_command(program: str, run: str, inventories: Sequence[str] = ()) -> str:
    """The command that undoes the rollout of a run. program: unhang, as typed; inventories: values
    of `-i`, if others than the run's."""
    given = [word for inventory in inventories for word in ("-i", inventory)]
    return f"{program} {shlex.join(['remediate', '--undo', run, *given])}"


def exit_code(status: Mapping[str, Any]) -> int:
    """0 if every node is proved and released and none soaks; 3 if nodes wait
    for their jobs or soak, and others at most for them; else 1."""
    rows = status["hosts"]
    rest = {row["state"] for row in rows if row["state"] != RELEASED}
    waits = any(row["state"] == WAITING or row["step"] == SOAK for row in rows)
    if waits and rest <= {WAITING, POSTPONED, TO_COME}:
        return 3
    return 1 if rest else 0


def describe_waiting(status: Mapping[str, Any]) -> str:
    """Which nodes wait for which jobs, and until when at most; "" for none."""
    rows = [row for row in status["hosts"] if row["state"] == WAITING]
    if not rows:
        return ""
    whys = [row["why"].removeprefix("drain: ").removeprefix("wait: ") for row in rows]
    each = zip(rows[:MOST_WAITING], whys, strict=False)
    shown = "; ".join(f"{row['host']} for {visible(why, 200)}" for row, why in each)
    more = f"; and {len(rows) - MOST_WAITING} more (--status)" if rows[MOST_WAITING:] else ""
    many = f"{counted(len(rows), 'node')} {'waits' if len(rows) == 1 else 'wait'}"
    return f"{many}: {shown}{more}"


def _row(
    wave: str, entry: HostPlan, replayed: RolloutState, own: Sequence[Entry], undo: str, runs: bool
) -> dict[str, Any]:
    node = replayed.node(entry.host)
    audited = (
        {}
        if node.rolled_back
        else {key: _last(own, "audit", key) for key in ("running", "gone", "left")}
    )  # a rollback undoes the changes after the audit
    gone, left = audited.get("gone") or [], audited.get("left") or []
    planned = {rule for one in entry.remedies for rule in one.because} | {
        one.rule for one in entry.person
    }
    state = _last(own, "apply", "saved_state") or ""
    soaks = _soaks_until(node, replayed)
    return {
        "host": entry.host,
        "wave": wave,
        "state": node.state,
        "meaning": meaning_of(node),
        "why": "; ".join(
            filter(
                None,
                (
                    as_typed_here(joined(node.why or node.failure)),
                    _to_look_at(node, own),
                ),
            )
        ),
        "step": SOAK if soaks else node.begun,
        "since": own[-1].at if own else None,
        "until": soaks
        or (_until(own) if node.begun else "")
        or (str(own[-1].evidence.get("until") or "") if node.state == WAITING else ""),
        "next": (
            "asked again when its soak is over"
            if soaks
            else what_next(node, entry, runs, replayed.stopped, replayed.closed)
        ),
        "boots": [f"{BOOTS[step]}, out of {left}" for step, left in _ordered(node, entry)],
        "drained": node.out_of_service and not node.serves,
        "locked": node.locked,
        "before": {one.role: one.before for one in entry.remedies if one.before},
        "wanted": {one.role: one.after for one in entry.remedies if one.after},
        "running": audited.get("running") or {},
        "found": sorted({*planned, *gone, *left}),
        "gone": gone,
        "left": left,
        "bandwidth_alone": [] if node.rolled_back else _last(own, "smoke_alone", "bandwidth") or [],
        "bandwidth": (
            _last(own, "smoke_together", "bandwidth")
            or _last(own, "smoke_alone", "bandwidth")
            or []
        ),
        "saved_state": state,
        "undo": (
            f"{undo} --host {shlex.quote(entry.host)}"
            if undo and state and not node.rolled_back
            else ""
        ),
    }


def _ordered(node: NodeState, entry: HostPlan) -> list[tuple[str, str]]:
    """The boots that this rollout has ordered, and that happened: the node has left each boot once
    at most. One during the roles is a trial boot where the plan has one, and else not its own: a
    power cut, or a person."""
    tries = any(one.step == "trial" for one in entry.reboots)
    by_boot = {left: step for step, left in node.boots if left != node.boot_id}
    return [(step, left) for left, step in by_boot.items() if step != "apply" or tries]


def fleet_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The totals of the rows: {nodes, proved_healthy, boots, findings: {found, gone}}, and of the
    bandwidth of the nodes

    bandwidth_alone, bandwidth: [{op, size_bytes, nodes, lowest_gb_s, highest_gb_s}].
    """
    rates = [rates_of(row) for row in rows]
    return {
        "nodes": len(rows),
        "proved_healthy": sum(row["state"] == RELEASED for row in rows),
        "boots": sum(len(row["boots"]) for row in rows),
        "findings": {
            "found": sum(len(row["found"]) for row in rows),
            "gone": sum(len(row["gone"]) for row in rows),
        },
        "bandwidth_alone": span_of(one["alone"] for one in rates),
        "bandwidth": span_of(one["last"] for one in rates),
    }


def _to_look_at(node: NodeState, own: Sequence[Entry]) -> str:
    """What others have changed since, as a rollback or an undo has found it; "" for nothing."""
    steps = ("roll_back", "audit_back") if node.rolled_back else ("apply", "audit")
    rows = [row for step in steps for row in _last(own, step, "look_at") or []]
    more = f"; and {len(rows) - MOST_TO_LOOK_AT} more" if len(rows) > MOST_TO_LOOK_AT else ""
    return f"look at {'; '.join(map(str, rows[:MOST_TO_LOOK_AT]))}{more}" if rows else ""


def as_typed_here(text: str) -> str:
    """A reason of a playbook in the words of who typed `unhang remediate`."""
    return TAKES_OVER.sub(lambda found: f"--ansible=-e --ansible=unhang_take_over={found[1]}", text)


def what_next(
    node: NodeState,
    entry: HostPlan,
    runs: bool = False,
    stopped: str | None = None,
    closed: str | None = None,
) -> str:
    """What comes next on the node, in one line. runs: a controller is at work on it; else the same
    command has to be given again. stopped: why the failure limit lets nothing begin; closed: why
    nobody may go on with the rollout."""
    if closed and node.state not in FINAL:
        return "nothing, for the rollout has ended; audit and plan again"
    if node.rests == FAILED and node.changed and not node.failure and not node.proved:
        return (
            "it stays drained, for it has booted since its proof; started again, the same command"
            " proves it again, then gives it back"
        )
    if node.fell:
        return (
            "a person looks at it now; when it is well, in the boot in which it was proved, the"
            " same command asks it again and goes on; else audit and plan"
        )
    if node.state in (KEPT, LOST):
        return NEXT_OF[node.state] + _put_back(entry)
    if node.state in NEXT_OF:
        return NEXT_OF[node.state]
    if node.state in FINAL:
        return ""
    if node.state == TO_COME:
        return "" if stopped else "it begins when its wave may"
    if runs and node.state == UNFINISHED and not node.rests:
        return "nothing to type: the rollout is at work on it"
    if node.state == POSTPONED and node.needs_root:
        return (
            "the same command, with root on the node: --ansible=--become, or ansible_become: true"
            " in the inventory"
        )
    taken = replace(
        node, epoch=1, state=TO_COME, begun=None, done=frozenset(("lock", "drain", "wait"))
    )
    order = next_order(taken, target_of(entry), 1)
    if order is None:
        return ""
    if node.state == POSTPONED:
        return "" if AGAIN in node.why else "the same command tries it again"
    again = "when it answers, the same command" if node.rests == SILENT else "the same command"
    does = "reboots it, unless it has booted since" if order.again else DOES[order.step]
    return f"{again} goes on: it {does}"


def _put_back(entry: HostPlan) -> str:
    """What a person types for a repaired node on which nothing is left to be rolled out; "" without
    a scheduler."""
    host = shlex.quote(entry.host)
    typed = {
        "slurm": f"scontrol update NodeName={host} State=RESUME",
        "kubernetes": f"kubectl annotate node {host} unhang-drain- && kubectl uncordon {host}",
    }
    command = typed.get(entry.scheduler or "")
    return f"; where that plan has nothing for it: {command}" if command else ""


def _soaks_until(node: NodeState, replayed: RolloutState) -> str:
    """When the node's soak is over; "" if it does not soak."""
    until = str(replayed.soak.evidence.get("until") or "") if replayed.soak is not None else ""
    soaks = node.state == RELEASED and not node.out_of_service and node.asked_after < until
    return until if soaks else ""


def _until(own: Sequence[Entry]) -> str:
    """The deadline of the step that was begun last."""
    return str(
        next((one.evidence.get("until") or "" for one in reversed(own) if one.status == BEGUN), "")
    )


def step_now(row: Mapping[str, Any]) -> str:
    """The current step of a node as text; "" for none."""
    until = until_words(row["step"], row["until"]) if row["step"] else ""
    return (
        f"{NOW.get(row['step'], row['step'])} since {row['since']}{', ' if until else ''}{until}"
        if row["step"]
        else ""
    )


def _last(entries: Sequence[Entry], step: str, key: str) -> Any:
    return next(
        (
            one.evidence[key]
            for one in reversed(entries)
            if one.step == step and one.status == DONE and key in one.evidence
        ),
        None,
    )
