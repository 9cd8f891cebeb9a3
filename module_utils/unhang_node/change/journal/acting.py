"""The first step of every module that acts: it stops when its run has lost the node, and keeps the node until its process ends."""

from __future__ import annotations

from typing import Any

from .node_lock import start_work


def enter(module: Any) -> None:
    """Fails the module, before it changes anything, when another run has taken the node. Nothing in check mode. module: an AnsibleModule."""
    if module.check_mode:
        return
    try:
        start_work(module.params.get("rootfs") or "/", module.params.get("state_id") or "", module.params["fencing"])
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
