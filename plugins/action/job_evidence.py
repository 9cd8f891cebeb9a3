# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The controller's side of job_evidence: runs the module, and bounds what a node may answer. A node
that never ends printing loses its own answer alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]

from unhang.core.ansible.answer import ANSWER_LIMIT_CHARS
from unhang.core.ansible.memory_watch import MemoryWatch, bound_output
from unhang.core.ansible.printable_text import clean

TOO_LONG = f"the answer is longer than {ANSWER_LIMIT_CHARS} characters"


class ActionModule(ActionBase):
    """One node: read, with limits on size and memory; the task's `timeout` limits the time."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Any = None) -> dict[str, Any]:
        """{evidence: text} of the module, or {failed, msg}."""
        super().run(tmp, task_vars)
        self.longest = 0
        bound_output(self._connection, ANSWER_LIMIT_CHARS)
        watch = MemoryWatch()
        try:
            with watch:
                answer = self._execute_module(task_vars=task_vars)
        except BaseException:
            if not watch.exceeded:
                raise
            return {"failed": True, "changed": False, "msg": TOO_LONG}
        if self.longest > ANSWER_LIMIT_CHARS:
            return {"failed": True, "changed": False, "msg": TOO_LONG}
        if isinstance(evidence := answer.get("evidence"), str) and not answer.get("failed"):
            return {"changed": False, "evidence": evidence}
        return {
            "failed": True,
            "changed": False,
            "msg": clean(answer.get("msg") or "the module ended without an answer"),
        }

    def _low_level_execute_command(self, cmd: Any, *arguments: Any, **more: Any) -> Any:
        """Notes how long the longest answer is, and keeps a longer one than allowed from Ansible's
        own reader."""
        executed = super()._low_level_execute_command(cmd, *arguments, **more)
        self.longest = max(self.longest, len(executed.get("stdout", "")))
        return (
            executed
            if len(executed.get("stdout", "")) <= ANSWER_LIMIT_CHARS
            else {**executed, "stdout": "", "stdout_lines": []}
        )
