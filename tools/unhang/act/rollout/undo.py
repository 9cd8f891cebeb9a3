"""The plan that undoes a rollout: which hosts it can be undone on, and the same waves and limits
over them. Values in, values out."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import replace

from msgspec import structs

from unhang.act.plan.plan_document import HostPlan, Plan, PlannedRun, Reboot, Remedy, Wave
from unhang.act.rollout.node_state import NodeState
from unhang.act.rollout.rollout_state import RolloutState
from unhang.act.rollout.steps import FINAL, TAKEN_OVER, UNDO_ROLE
from unhang.core.errors import UserError
from unhang.core.nodeset import fold_hosts, shortened

LONGEST_LIST = 200
WHY_BOOT = "a restored driver, kernel or boot entry counts from the next boot on"
WHY_SECOND = "packages that wait for the restored kernel count from one more boot on"


def hosts_to_undo(
    plan: Plan,
    standing: RolloutState,
    undone: Collection[str],
    asked: Collection[str] | None = None,
) -> list[str]:
    """Hosts that the rollout has changed and that nothing has brought back since, in the order of
    the waves. undone: hosts on which it was undone; asked: hosts that a person named. Raises
    UserError if there is none, or if a named one cannot be undone, or if the rollout still holds
    unchanged nodes: it does not go on once it is undone, so nobody would release these."""
    why_not = {
        host: why
        for wave in plan.waves
        for host in wave.hosts
        if (why := _why_not(standing.node(host), host in undone))
    }
    planned = list(plan.wave_of)
    held = [
        host
        for host in planned
        if standing.node(host).touched
        and not standing.node(host).changed
        and standing.node(host).state not in FINAL
    ]
    if held and not standing.closed:
        found = (
            f"it still has {shortened(fold_hosts(held), LONGEST_LIST)} locked or drained, and"
            " unchanged"
        )
        raise UserError(
            f"the rollout has not ended: {found}; nothing is undone; first: unhang remediate --end"
            f" {shlex.quote(plan.run.id)}"
        )
    wanted = [host for host in planned if host not in why_not and (asked is None or host in asked)]
    refused = {
        host: why_not.get(host, "is not in the plan")
        for host in sorted(asked or ())
        if host not in wanted
    }
    if refused or not wanted:
        found = "; ".join(
            f"{host} {why}" for host, why in list(refused.items())[:8]
        ) or _folded_reasons(why_not)
        raise UserError(
            f"the rollout of run {plan.run.id} cannot be undone on these nodes: {found or 'none'};"
            " nothing is undone there"
        )
    return wanted


def _why_not(node: NodeState, is_undone: bool) -> str:
    if is_undone:
        return "was undone already"
    if not node.changed:
        return "was not changed"
    if node.as_before:
        return "was rolled back by the rollout itself"
    return "belongs to another run now" if node.state == TAKEN_OVER else ""


def _folded_reasons(why_not: dict[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for host, why in why_not.items():
        by_reason.setdefault(why, []).append(host)
    return "; ".join(
        f"{shortened(fold_hosts(hosts), LONGEST_LIST)} {why}" for why, hosts in by_reason.items()
    )


def undo_plan(
    plan: Plan, hosts: Sequence[str], number: int, now: str, through: bool = False
) -> Plan:
    """The plan that undoes the rollout of a plan on these hosts: its waves and limits. number: 1
    for the first undo of that rollout; now: RFC 3339, UTC; through: and what later runs have
    changed."""
    kept = [(wave, tuple(host for host in wave.hosts if host in hosts)) for wave in plan.waves]
    waves = [Wave(wave.name, left) for wave, left in kept if left]
    return replace(
        plan,
        run=PlannedRun(f"{plan.run.id}-{folder_name(number)}", now, now),
        day=now[:10],
        limits=structs.replace(plan.limits, only=(), except_=(), hosts=tuple(hosts)),
        hosts=tuple(_entry(plan.by_host[host]) for wave in waves for host in wave.hosts),
        waves=tuple(waves),
        undoes=plan.run.id,
        through=through,
    )


def _entry(entry: HostPlan) -> HostPlan:
    changed = [one for one in entry.remedies if one.before and one.after]
    now = "; ".join(f"{one.role} {one.after}" for one in changed) or None
    before = "; ".join(f"{one.role} {one.before}" for one in changed) or None
    because = tuple(sorted({rule for one in entry.remedies for rule in one.because}))
    reboots = (
        Reboot("apply", WHY_BOOT),
        Reboot("apply", WHY_SECOND),
        Reboot("rollback", "the node is not proved to be as it was"),
    )
    remedy = Remedy(UNDO_ROLE, entry.policy, because, now, before)
    return replace(
        entry,
        remedies=(remedy,),
        reboots=reboots,
        boot_id=None,
        config_hash=None,
        jobs=None,
        refused=(),
    )


def folder_name(number: int) -> str:
    """The folder of an undo, in the run folder of the rollout that it undoes; also the end of its
    id."""
    return "undo" if number == 1 else f"undo-{number}"
