"""The first step of every module that changes a node: it stops if its run has lost the lock, and
keeps the lock until its process ends."""

from __future__ import annotations

from typing import Any

from .node_lock import start_work


def enter(module: Any) -> None:
    """Fails the module, before it changes anything, if another run has taken the node. Does nothing
    in check mode. module: an AnsibleModule."""
    if module.check_mode:
        return
    try:
        start_work(
            module.params.get("rootfs") or "/",
            module.params.get("state_id") or "",
            module.params["fencing"],
        )
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
