# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The controller's side of node_lock: only here can be seen whether the process that holds a lock
has ended, and where the facts of a node are read."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.validation import check_type_int
from ansible.plugins.action import ActionBase

# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]

from unhang.core.ansible.controllers import is_over


class ActionModule(ActionBase):
    """One call of the module, and a second one for a lock whose holder is waited for or is over."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Any = None) -> dict[str, Any]:
        """The module's result with {run, rootfs}; with msg, and printed as that of debug is, if a
        lock was taken over."""
        super().run(tmp, task_vars)
        given = self._task.args
        rootfs, read_at = given.get("rootfs", "/"), given.get("read_at") or []
        if read_at and rootfs not in read_at:
            return {"failed": True, "changed": False, "msg": _elsewhere(rootfs, read_at)}
        answer = self._lock(given, task_vars) | {"run": given.get("run"), "rootfs": rootfs}
        over = answer.get("taken_over")
        report = {"msg": _taken_over(over), "_ansible_verbose_always": True} if over else {}
        return answer | report

    def _lock(self, given: Mapping[str, Any], task_vars: Any) -> dict[str, Any]:
        if "take_over_wait_s" not in given:
            return self._call(given, task_vars)
        # The first try does not wait, so that a lock whose process has ended on this controller can
        # be taken over at once.
        answer = self._call({**given, "wait_s": 0}, task_vars)
        holder = answer.get("holder")
        if not answer.get("failed") or not holder:
            return answer
        ended, takes_over = is_over(holder), given.get("takes_over", "")
        # A module of an ended run may still be at work on the node: it is waited for as for another
        # run.
        waits = [given.get("wait_s", 0), given["take_over_wait_s"] if ended or takes_over else 0]
        try:
            wait_s = max(map(check_type_int, waits))
        except TypeError as problem:
            raise AnsibleActionFail(f"seconds to wait for the lock: {problem}") from None
        if not (wait_s or ended):
            return answer
        more = {"wait_s": wait_s, "takes_over": holder["run"] if ended else takes_over}
        return self._call({**given, **more}, task_vars)

    def _call(self, given: Mapping[str, Any], task_vars: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._execute_module(
            module_name="node_lock", module_args=dict(given), task_vars=task_vars
        )
        return answer


def _elsewhere(rootfs: str, read_at: list[str]) -> str:
    return (
        "this node is a recorded node or an image, read from elsewhere than it is changed"
        f" ({rootfs}): a role would change the machine behind the connection instead, so nothing"
        " was touched; next: the same with an inventory of machines; unhang_rootfs of this node is"
        f" {', '.join(map(str, read_at))}"
    )


def _taken_over(lock: Mapping[str, Any]) -> str:
    return (
        f"took over from run {lock['run']} by {lock['by']}, which had the node since"
        f" {lock['since']}: {lock['why']}"
    )
