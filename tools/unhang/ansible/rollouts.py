"""What the action plugins of a rollout are given by Ansible, as the conductor takes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unhang.plan.plan_document import read_plan
from unhang.rollout.conductor import Conductor
from unhang.rollout.steps import Answer, Order

DRAIN_WAIT_S = 3600  # roles/drain/defaults/main.yml


def conductor_of(rollout: Mapping[str, Any]) -> Conductor:
    """rollout: as rollout_begin returned it. Raises UserError."""
    folder, read = Path(str(rollout["folder"])), str(rollout.get("read") or "")
    return Conductor(folder, read_plan(folder), int(rollout["epoch"]), Path(read) if read else None)


def groups_of(task_vars: Mapping[str, Any]) -> dict[str, list[str]]:
    """The inventory's groups with their hosts."""
    return {str(name): [str(host) for host in members] for name, members in task_vars["groups"].items()}


def limit_of(step: str, task_vars: Mapping[str, Any]) -> int:
    """Seconds that the step may wait for jobs, as the role drain takes it; 0 where it waits for none, or where a template would have to be filled in."""
    if step != "wait" or str(task_vars.get("drain_beside_jobs", "")).lower() in ("true", "yes", "1"):
        return 0
    given = str(task_vars.get("drain_wait_timeout_s", DRAIN_WAIT_S))
    return int(given) if given.isdecimal() else 0


def order_of(document: Mapping[str, Any]) -> Order:
    """An order that went through Ansible's variables."""
    boot = document.get("boot_id")
    host, step, left, why = str(document["host"]), str(document["step"]), int(document["reboots_left"]), str(document["why"])
    return Order(host, step, int(document["token"]), str(boot) if boot else None, left, why)


def answer_of(status: str, evidence: Mapping[str, Any]) -> Answer:
    """An answer without Ansible's own types of text."""
    return Answer(str(status), _plain(evidence))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, bool) or value is None:
        return value
    return int(value) if isinstance(value, int) else float(value) if isinstance(value, float) else str(value)
