"""Properties of every rollout, whatever happened, checked on what really happened to the modelled
nodes. Shares no code with the machine that it checks."""

from __future__ import annotations

import json
from typing import Any

PROOFS = {"audit", "smoke_alone", "smoke_together", "audit_again"}
PUT_OFF = {("failed", step) for step in ("lock", "drain", "wait", "save")} | {
    ("done", "release"),
    ("failed", "apply"),
}
NAMED = {
    "released", "kept", "lost", "taken over", "unfinished", "deferred", "to come", "waiting",
}  # fmt: skip


def check(case: Any, states: dict[str, Any]) -> list[str]:
    """The violations, one line each. states: {host: its state in the status}."""
    faults = [
        *_reboots(case),
        *_drains(case),
        *_room(case),
        *_floor(case),
        *_changes(case),
        *_released_unproved(case),
        *_failure_limit(case),
    ]
    return (
        faults
        + _verdicts(case, states)
        + [line for host in case.plan.targets for line in _end(case, host, states)]
        + _second_run(case, states)
    )


def _events(case: Any, host: str) -> list[tuple[int, str, Any]]:
    return [
        (at, what, detail) for at, (what, name, detail) in enumerate(case.world.log) if name == host
    ]


def _reboots(case: Any) -> list[str]:
    faults = []
    for host, target in case.plan.targets.items():
        kinds = [detail for _, what, detail in _events(case, host) if what == "boot"]
        if kinds.count("trial") + kinds.count("reboot") > target.reboots:
            faults.append(f"{host}: booted {kinds}, the plan has {target.reboots}")
        faults += [
            f"{host}: {kind} twice"
            for kind in ("trial", "reboot", "rollback")
            if kinds.count(kind) > 1
        ]
    return faults


def _drains(case: Any) -> list[str]:
    faults = []
    for host in case.plan.targets:
        by_us = False
        for _, what, detail in _events(case, host):
            if what == "undrain" and not (by_us and detail[0].startswith("unhang ")):
                faults.append(f"{host}: released, and was drained by {detail[0]}")
            by_us = {
                "drain": True,
                "drained by somebody else": False,
                "undrain": False,
                "resumed by somebody else": False,
            }.get(what, by_us)
    return faults


def _room(case: Any) -> list[str]:
    faults, out = [], set()
    for what, host, _ in case.world.log:
        if what == "drain":
            out.add(host)
            faults += [
                f"{sorted(out & limit.hosts)} out of service, {limit.out_of_service} may be"
                for limit in case.plan.limits.groups
                if len(out & limit.hosts) > limit.out_of_service
            ]
        elif what in ("undrain", "resumed by somebody else"):
            out.discard(host)
    return faults


def _floor(case: Any) -> list[str]:
    """No drain by the rollout takes the fleet below its floor, by the scheduler's last answer
    before the drain was ordered about the nodes in service."""
    if not case.plan.floor:
        return []
    fleet = {*case.plan.targets, *case.world.beside}
    ours, listed, faults = set[str](), set[str](), []
    ordered = dict[str, set[str]]()
    for what, host, detail in case.world.log:
        if what == "listed":
            listed = detail - ours
        elif (what, detail) == ("ordered", "drain"):
            ordered[host] = set(listed)
        elif what == "drain":
            ours.add(host)
            serving = fleet - ours - ordered[host]
            if len(serving) < case.plan.floor:
                faults.append(
                    f"{host}: drained, and {sorted(serving)} stay in service; {case.plan.floor}"
                    " have to"
                )
        elif what in ("undrain", "drained by somebody else", "resumed by somebody else"):
            ours.discard(host)
    return faults


def _changes(case: Any) -> list[str]:
    """Nothing acts on a node with a job, in service, or locked by another run."""
    faults = []
    for host in case.plan.targets:
        locked = drained = changed = False
        if "drained by somebody else" in case.faults_at_first[host]:
            drained = True
        for _, what, detail in _events(case, host):
            locked = {"lock": True, "unlock": False, "taken over": False}.get(what, locked)
            drained = {
                "drain": True,
                "drained by somebody else": True,
                "undrain": False,
                "resumed by somebody else": False,
            }.get(what, drained)
            if what == "change" and (detail or not locked or not drained):
                faults.append(
                    f"{host}: changed with jobs {detail}, locked {locked}, drained {drained}"
                )
            changed = changed or what == "change"
            if what == "boot" and detail in ("trial", "reboot", "rollback") and not locked:
                faults.append(f"{host}: booted without a lock")
    return faults


def _standing(events: list[tuple[int, str, Any]]) -> str:
    """untouched, proved, restored or broken."""
    if not any(what == "change" for _, what, _ in events):
        return "untouched"
    last = max(at for at, what, _ in events if what in ("change", "boot"))
    verdicts = {
        detail[0]: detail[1] for at, what, detail in events if what == "verdict" and at > last
    }
    if all(verdicts.get(step) for step in PROOFS):
        return "proved"
    return "back" if verdicts.get("audit_back") else "broken"


def _released_unproved(case: Any) -> list[str]:
    faults = []
    for host in case.plan.targets:
        events = _events(case, host)
        for at, what, _ in events:
            standing = _standing([one for one in events if one[0] < at])
            if what == "undrain" and standing not in ("untouched", "proved"):
                faults.append(f"{host}: released while {standing}")
    return faults


def _failure_limit(case: Any) -> list[str]:
    """Damage stays within the batch in flight: a wave begins only while the nodes of the earlier
    waves keep the failure limit."""
    faults = []
    for number, wave in enumerate(case.plan.waves):
        first = min(
            (at for host in wave for at, what, _ in _events(case, host) if what == "change"),
            default=None,
        )
        if first is None or number == 0:
            continue
        earlier = {
            host: _standing([one for one in _events(case, host) if one[0] < first])
            for hosts in case.plan.waves[:number]
            for host in hosts
        }
        put_off = _put_off(case)
        died = {
            host
            for what, host, detail in case.world.log[:first]
            if (what, detail) == ("boot", "by itself after its release")
        }
        broken = [
            host for host, standing in earlier.items() if standing == "broken" and host not in died
        ]
        failed = [
            host
            for host, standing in earlier.items()
            if standing != "proved" and not (standing == "untouched" and host in put_off)
        ]
        canaries = [
            host
            for host, standing in earlier.items()
            if standing != "proved" and host in case.plan.limits.canaries
        ]
        if broken or canaries or len(failed) > case.plan.limits.failed:
            faults.append(
                f"wave {number} began behind {broken} broken, {failed} not proved,"
                f" {case.plan.limits.failed} may be"
            )
    return faults


def _lines(case: Any) -> list[dict[str, Any]]:
    found = []
    for line in case.journal.content.split(b"\n"):
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def _put_off(case: Any) -> set[str]:
    """Nodes that were put off at their lock, released before a change, or that waited
    for a job: an untouched one of these is no failure."""
    return {
        line["host"]
        for line in _lines(case)
        if line["status"] in ("deferred", "waits") or (line["status"], line["step"]) in PUT_OFF
    }


def _verdicts(case: Any, states: dict[str, Any]) -> list[str]:
    """A node that was judged unhealthy is never released."""
    bad = {
        host
        for what, host, detail in case.world.log
        if what == "verdict" and detail[0] in PROOFS and not detail[1]
    }
    written = {
        line["host"]
        for line in _lines(case)
        if line["status"] == "failed" and line["step"] in PROOFS
    }
    return [
        f"{host}: judged unhealthy, and ended {states[host].state}"
        for host in sorted(bad | written)
        if states[host].state == "released"
    ]


def _end(case: Any, host: str, states: dict[str, Any]) -> list[str]:
    node, state = case.world.nodes[host], states[host].state
    ours, locked, events = (
        (node.drained_by or "").startswith("unhang "),
        node.holder not in (None, "elsewhere"),
        _events(case, host),
    )
    standing = _standing(events)
    wanted = {
        "released": standing == "proved" and not ours and not locked,
        "kept": standing == "back" and node.drained_by is not None and not locked,
        "lost": node.drained_by is not None or states[host].fell,
        "deferred": standing == "untouched" and not ours and not locked,
        "waiting": standing == "untouched" and node.drained_by,
        "to come": standing == "untouched" and not ours and not locked,
    }
    faults = [] if state in NAMED else [f"{host}: ended as {state!r}, which is no named state"]
    if not wanted.get(state, True):
        faults.append(
            f"{host}: said to be {state}, and is {standing}, drained by {node.drained_by}, locked"
            f" by {node.holder}"
        )
    named = [kind for kind, _left in states[host].boots]
    truth = [
        detail
        for _, what, detail in events
        if what == "boot" and detail in ("trial", "reboot", "rollback")
    ]
    if state in ("released", "kept") and len(named) < len(truth):
        faults.append(f"{host}: booted {truth}, and {named} are named")
    return faults


def _second_run(case: Any, states: dict[str, Any]) -> list[str]:
    """When the same command runs once more, it does not change a node that has a final state."""
    over = {"released", "kept"}
    return [
        f"{host}: {what} by a run that had nothing to do"
        for what, host, _ in case.world.log[case.finished_at :]
        if case.ended.get(host) in over
    ]
