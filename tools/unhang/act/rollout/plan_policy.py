"""Whether the inventory's policy of a host was edited after its plan was made. A rollout judges by
the plan's own policy and only reports the edit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unhang.act.plan.plan_document import Plan
from unhang.act.rollout.conductor import folder_before
from unhang.core.ansible.inventory import plain
from unhang.core.run.documents import InvalidNode
from unhang.core.run.run_folder import file_stem, read_node


def policy_of(folder: Path, plan: Plan, host: str) -> dict[str, Any]:
    """The policy by which a rollout reads, judges and proves a host: the plan's, or, for an undo,
    that of the audit to whose state it goes back. folder: of the plan, or its file."""
    entry = plan.for_host(host)
    own = dict(entry.policy) if entry else {}
    return (_policy_then(folder, plan, host) or {}) if plan.undoes else own


def was_edited(folder: Path, plan: Plan, host: str, policy: Mapping[str, Any]) -> bool:
    """Whether the inventory's policy differs now from the one under which the audit of the plan
    read the host. False where that audit is gone."""
    then = _policy_then(folder, plan, host)
    return then is not None and plain(policy) != then


def _policy_then(folder: Path, plan: Plan, host: str) -> dict[str, Any] | None:
    run = folder_before(folder) if plan.undoes else (folder if folder.is_dir() else folder.parent)
    path = run / "nodes" / f"{file_stem(host)}.json"
    try:
        found = read_node(path).get("policy") if path.is_file() else None
    except InvalidNode:
        return None
    return found if isinstance(found, dict) else None
