"""The result of a preview: changes, refusals with reasons, and reboots for each node and role.
Values in, values out."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from unhang.act.plan.description import describe_jobs
from unhang.act.plan.plan_document import HostPlan, Plan, Remedy
from unhang.act.rollout.reasons import describe_edit

SCHEMA = "unhang/preview/1"
CHANGES, NO_CHANGE, REFUSES, NOT_PLAYED, UNFORESEEN = (
    "would change",
    "no change",
    "refuses",
    "not played",
    "not foreseen",
)
POLICY_EDITED = "Report a policy that was edited since the plan"  # a task of playbooks/rollout.yml
Event = Mapping[str, Any]


def parse_events(text: str) -> list[Event]:
    """The callback's lines as objects, without an incomplete line of a killed Ansible."""
    events = []
    for line in text.splitlines():
        try:
            events.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return events


def preview_of(plan: Plan, events: Iterable[Event]) -> dict[str, Any]:
    """The document unhang/preview/1: the hosts of the waves in their order, then hosts with
    refusals in the plan. Of a host: {host, wave, why, roles: [{role, outcome, why, reports,
    changes: [{task, diffs: [{name, added, removed, lines}]}], because}], refused, reboots, jobs,
    running, needs_root}. why: the reason that stopped the whole node, or ""; jobs: how many of its
    scheduler and processes on its GPUs, None if not known, and running names them; needs_root: its
    connecting user may not lock it."""
    by_host: dict[str, list[Event]] = {}
    for event in events:
        by_host.setdefault(event["host"], []).append(event)
    waves = {host: wave.name for wave in plan.waves for host in wave.hosts}
    shown = [plan.by_host[host] for host in waves] + [
        entry for entry in plan.hosts if entry.refused and entry.host not in waves
    ]
    rows = [_host(entry, waves.get(entry.host), by_host.get(entry.host, [])) for entry in shown]
    edited = [host for host, found in by_host.items() if any(map(_is_edit, found))]
    return {
        "schema": SCHEMA,
        "run": plan.run.id,
        "policy_edited": describe_edit(edited),
        "hosts": rows,
    }


def _is_edit(event: Event) -> bool:
    return event["status"] == "reported" and event["task"] == POLICY_EDITED


def _host(entry: HostPlan, wave: str | None, events: Sequence[Event]) -> dict[str, Any]:
    stopped = next(
        (
            one["text"]
            for one in events
            if one["status"] == "failed" and one["role"] not in entry.roles
        ),
        "",
    )
    roles = [
        _role(remedy, [one for one in events if one["role"] == remedy.role])
        for remedy in entry.remedies
    ]
    changing = accumulate(
        ([one["role"]] * (one["outcome"] == CHANGES) for one in roles), initial=list[str]()
    )
    return {
        "host": entry.host,
        "wave": wave,
        "why": stopped.removeprefix(f"{entry.host} "),
        "roles": [_after_others(*pair) for pair in zip(roles, changing, strict=False)],
        "refused": [one.why for one in entry.refused],
        "reboots": [{"step": one.step, "why": one.why} for one in entry.reboots],
        "jobs": None if entry.jobs is None else len(entry.jobs),
        "running": describe_jobs([entry]),
        "needs_root": any(one["needs_root"] for one in events),
    }


def _after_others(role: dict[str, Any], changing_before: Sequence[str]) -> dict[str, Any]:
    """A role that fails in check mode behind one that would change something: check mode has not
    made that change, so nothing is known."""
    if role["outcome"] != REFUSES or not changing_before:
        return role
    return {
        **role,
        "outcome": UNFORESEEN,
        "why": f"it depends on what {', '.join(changing_before)} changes first; now: {role['why']}",
    }


def _role(remedy: Remedy, events: Sequence[Event]) -> dict[str, Any]:
    changes = [
        {"task": one["task"], "diffs": [_diff(diff) for diff in one["diffs"]]}
        for one in events
        if one["status"] == "changed"
    ]
    failed = [one["text"] or one["task"] for one in events if one["status"] == "failed"]
    outcome = NOT_PLAYED if not events else REFUSES if failed else CHANGES if changes else NO_CHANGE
    return {
        "role": remedy.role,
        "outcome": outcome,
        "why": failed[0] if failed else "",
        "reports": list(
            dict.fromkeys(one["text"] for one in events if one["status"] == "reported")
        ),
        "changes": changes,
        "because": list(remedy.because),
    }


def _diff(given: Mapping[str, str]) -> dict[str, Any]:
    """{name, added, removed, lines}: numbers of lines, and the lines of a unified difference
    without context."""
    lines = list(
        difflib.unified_diff(
            given["before"].splitlines(), given["after"].splitlines(), n=0, lineterm=""
        )
    )[2:]
    lines = [line for line in lines if not line.startswith("@@")]
    added = sum(line.startswith("+") for line in lines)
    return {"name": given["name"], "added": added, "removed": len(lines) - added, "lines": lines}


def refuses(row: Mapping[str, Any]) -> bool:
    """Whether a part of the plan for a host would be refused."""
    return bool(row["why"] or row["refused"]) or any(
        one["outcome"] in (REFUSES, NOT_PLAYED) for one in row["roles"]
    )


def changes(row: Mapping[str, Any]) -> bool:
    return any(one["outcome"] == CHANGES for one in row["roles"])
