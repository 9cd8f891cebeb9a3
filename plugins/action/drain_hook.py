# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The controller's side of drain_hook, which slurm_node and saved_state load: what a person has to
know is printed with the result, so that no task has to report it."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """One call of the module."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Any = None) -> dict[str, Any]:
        """The module's result, printed as that of debug is if it has a note or a msg. A failure has
        one: the role drain releases a node that Slurm does not know all the same."""
        super().run(tmp, task_vars)
        answer: dict[str, Any] = self._execute_module(task_vars=task_vars)
        is_told = answer.get("note") or answer.get("msg")
        return answer | ({"_ansible_verbose_always": True} if is_told else {})
