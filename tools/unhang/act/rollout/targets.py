"""The input of a rollout from its plan: waves, limits, and each host in the state machine's form.
Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unhang.act.plan.plan_document import HostPlan, Plan
from unhang.act.rollout.failure_limit import Limit, Limits, allowed_failures
from unhang.act.rollout.steps import Target
from unhang.core.errors import UserError

EVERYWHERE = "the fleet"
# role -> key of the policy that names the version that must run
EXACT = {"kernel": ("kernel", "version"), "gpu_driver": ("driver", "version")}


def waves_of(plan: Plan) -> list[tuple[str, ...]]:
    return [wave.hosts for wave in plan.waves]


def limits_of(plan: Plan, groups: Mapping[str, Sequence[str]], max_failed: int | str) -> Limits:
    """groups: of the inventory, {name: hosts}; max_failed: a number or a share of the hosts in the
    waves. Raises UserError.

    A group that the inventory no longer has is refused, because it would limit nothing.
    """
    hosts = {one.group: one.hosts or groups.get(one.group, ()) for one in plan.limits.groups}
    missing = [name for name, members in hosts.items() if not members]
    if missing:
        found = f"{', '.join(missing)}"
        raise UserError(
            f"the inventory lacks groups of the plan's limits: {found}; take the inventory that the"
            " plan was made for, or plan again"
        )
    limited = [
        Limit(one.group, frozenset(hosts[one.group]), one.max_unavailable)
        for one in plan.limits.groups
    ]
    everywhere = Limit(EVERYWHERE, plan.wave_of.keys(), plan.limits.max_unavailable)
    canaries = frozenset(host for wave in plan.waves if wave.is_canary for host in wave.hosts)
    return Limits(allowed_failures(max_failed, len(plan.wave_of)), canaries, (everywhere, *limited))


def target_of(entry: HostPlan, refused: Sequence[str] = ()) -> Target:
    """The entry as a Target. refused: why the entry must not be applied now (plan.applicable)."""
    running = {}
    for remedy in entry.remedies:
        section, key = EXACT.get(remedy.role, ("", ""))
        wanted = (entry.policy.get(section) or {}).get(key)
        if wanted:
            running[section] = str(wanted)
    forward = [one for one in entry.reboots if one.step != "rollback"]
    return Target(
        entry.host,
        entry.boot_id,
        len(forward),
        running,
        "; ".join(refused) or None,
        boots_back=len(forward) < len(entry.reboots),
    )
