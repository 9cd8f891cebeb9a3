# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Filters of playbooks/remediate.yml over a plan. Implementation: unhang.act.plan and
unhang.act.rollout, which import no Ansible."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]
NOBODY = "all:!all"


def plan_faults(path: str, groups: Mapping[str, Sequence[str]], max_failed: int = 0) -> Any:
    """Reasons against previewing or applying the plan with this inventory; [] for a good plan, and
    without a plan. groups: of the whole inventory."""
    from unhang.act.rollout.conductor import open_plan
    from unhang.act.rollout.targets import limits_of
    from unhang.core.errors import UserError

    try:
        if path:
            limits_of(
                open_plan(Path(str(path)), [str(host) for host in groups["all"]])[1],
                groups,
                str(max_failed),
            )
    except (UserError, OSError) as problem:
        return [str(problem)]
    return []


def plan_hosts(path: str, wanted: bool = True) -> Any:
    """The hosts of the plan's waves, in their order; or a pattern that matches no host, if they are
    not wanted or there are none."""
    hosts = list(_plan(str(path)).wave_of) if path and wanted else []
    return hosts or NOBODY


def plan_serial(path: str, known: Sequence[str]) -> Any:
    """Number of hosts of each wave, of those that the inventory (still) has."""
    waves = _plan(str(path)).waves if path else ()
    sizes = [len(set(wave.hosts) & set(known)) for wave in waves]
    return [size for size in sizes if size] or "100%"


def plan_held(path: str) -> Any:
    """As plan_hosts, of the nodes that the rollout still holds by its journal; all, if that was
    lost."""
    from unhang.act.rollout.conductor import Followed

    folder = Path(str(path))
    folder = folder if folder.is_dir() else folder.parent
    standing = Followed(folder, _plan(str(path))).standing()
    hosts = plan_hosts(path)
    return hosts if standing.is_lost else [host for host in hosts if standing.holds(host)] or NOBODY


def plan_roles(path: str, host: str) -> Any:
    """The roles of a host, in order."""
    entry = _plan(str(path)).for_host(str(host))
    return entry.roles if entry else []


def plan_policy(path: str, host: str) -> Any:
    """The one policy of a host, by which it is read, changed and proved."""
    from unhang.act.rollout.plan_policy import policy_of

    return policy_of(Path(str(path)), _plan(str(path)), str(host))


def plan_policy_edited(path: str, host: str, policy: Any) -> bool:
    """Whether the inventory's policy of a host was edited since the plan was made."""
    from unhang.act.rollout.plan_policy import was_edited

    return was_edited(Path(str(path)), _plan(str(path)), str(host), policy)


def plan_scheduler(path: str, host: str) -> str:
    """The scheduler that the audit has found on a host: slurm, kubernetes or none; "" if that is
    not certain."""
    entry = _plan(str(path)).for_host(str(host))
    return (entry.scheduler or "") if entry else ""


def plan_undoes(path: str) -> str:
    """Id of the run whose rollout the plan undoes; "" for any other plan."""
    return _plan(str(path)).undoes


def plan_through(path: str) -> bool:
    """Whether the plan also undoes what later runs have changed."""
    return _plan(str(path)).through


def plan_before(path: str) -> str:
    """Run folder with the nodes' state before the rollout that the plan undoes; "" for any other
    plan."""
    from unhang.act.rollout.conductor import folder_before

    plan = _plan(str(path))
    return str(folder_before(Path(str(path)))) if plan.undoes else ""


def plan_boots(path: str, host: str) -> bool:
    """Whether the plan reboots a host, apart from a rollback."""
    entry = _plan(str(path)).for_host(str(host))
    return bool(entry and any(one.step != "rollback" for one in entry.reboots))


def plan_person(path: str, host: str) -> Any:
    """Rules whose findings on a host the plan leaves to a person: the findings existed before, and
    no role of the plan changes them."""
    entry = _plan(str(path)).for_host(str(host))
    return sorted({one.rule for one in entry.person}) if entry else []


def drain_evidence(result: Any, adapter: str, step: Any, beside_jobs: bool = False) -> Any:
    """The fact drain_result as evidence of a step."""
    from unhang.act.rollout.evidence import drain_evidence as evidence

    return evidence(result, str(adapter), str(step), bool(beside_jobs))


def smoke_evidence(result: Any, host: str, asked: bool) -> Any:
    """The result of a smoke test as evidence for one host."""
    from unhang.act.rollout.evidence import smoke_evidence as evidence

    return evidence(result, str(host), bool(asked))


def rollout_groups(hosts: Sequence[str], hostvars: Mapping[str, Any], step: Any) -> Any:
    """Hosts of the batch that do this step now, by kind; none that was just found in use."""
    from unhang.act.rollout.evidence import groups_of_kinds

    free = [
        host
        for host in hosts
        if (hostvars[host].get("rollout_evidence") or {}).get("free") is not False
    ]
    return groups_of_kinds(
        {str(host): hostvars[host].get("rollout_asked") or {} for host in free}, str(step)
    )


def rollout_rest(group: Any, result: Any) -> Any:
    """Hosts to try once more after a group has failed."""
    from unhang.act.rollout.evidence import rest_of

    return rest_of([str(host) for host in group], result)


def undone_states(states: Sequence[Any], run: str) -> Any:
    """What this run has undone on the node."""
    from unhang.act.rollout.undone import undone_states as undone

    return undone(states, str(run))


def first_state(states: Sequence[Any], run: str) -> Any:
    """Id of the oldest saved state of this run."""
    from unhang.act.rollout.evidence import first_state as first

    return first(states, str(run))


def _plan(path: str) -> Any:
    from unhang.act.rollout.for_ansible import plan_of
    from unhang.core.errors import UserError

    try:
        return plan_of(Path(path))
    except UserError as problem:
        raise AnsibleFilterError(str(problem)) from None


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> Mapping[str, Callable[..., Any]]:
        """Filters by name."""
        return {
            "unhang_plan_faults": plan_faults,
            "unhang_plan_hosts": plan_hosts,
            "unhang_plan_serial": plan_serial,
            "unhang_plan_held": plan_held,
            "unhang_plan_roles": plan_roles,
            "unhang_plan_policy": plan_policy,
            "unhang_plan_policy_edited": plan_policy_edited,
            "unhang_plan_scheduler": plan_scheduler,
            "unhang_plan_undoes": plan_undoes,
            "unhang_plan_through": plan_through,
            "unhang_plan_before": plan_before,
            "unhang_plan_boots": plan_boots,
            "unhang_plan_person": plan_person,
            "unhang_drain_evidence": drain_evidence,
            "unhang_smoke_evidence": smoke_evidence,
            "unhang_rollout_groups": rollout_groups,
            "unhang_rollout_rest": rollout_rest,
            "unhang_first_state": first_state,
            "unhang_undone_states": undone_states,
        }
