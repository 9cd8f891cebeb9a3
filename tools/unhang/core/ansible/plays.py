"""Which plays and tasks are an audit of this project."""

from __future__ import annotations

from typing import Any

ACTIONS = frozenset(("gpu_node_info", "ansible.legacy.gpu_node_info", "unhang.ops.gpu_node_info"))


def audits(item: Any) -> bool:
    """True for a gpu_node_info task, and for a play or block that holds one. A role that reads a
    part of the node for itself audits nothing."""
    if hasattr(item, "get_tasks"):
        return any(audits(part) for part in item.get_tasks())
    if isinstance(item, list):
        return any(audits(part) for part in item)
    if hasattr(item, "block"):
        return any(audits(part) for part in [*item.block, *item.rescue, *item.always])
    return getattr(item, "action", None) in ACTIONS and getattr(item, "_role", None) is None
