"""The frame of every module that changes a node: it stops if its run has lost the lock, keeps the
lock until its process ends, and turns an error into the module's answer."""

from __future__ import annotations

from .node_lock import start_work

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# The options that plugins/doc_fragments/unhang.py documents.
SAVING = {"state_id": {"type": "str", "default": ""}, "fencing": {"type": "int", "default": 0}}
ON_ROOTFS = {**SAVING, "rootfs": {"type": "path", "default": "/"}}


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


def act(module: Any, work: Callable[[Any], dict[str, Any]]) -> None:
    """Enters, and ends the module with what the work answers, or fails it with the text of an
    OSError or ValueError. module: an AnsibleModule."""
    enter(module)
    try:
        answer = work(module)
    except (OSError, ValueError) as problem:
        module.fail_json(msg=str(problem))
    module.exit_json(**answer)
