# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The controller's side of saved_state: what a person has to know is printed with the result, so
that no task has to report it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """One call of the module."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: Any = None) -> dict[str, Any]:
        """The module's result; with msg, and printed as that of debug is, if there is a report."""
        super().run(tmp, task_vars)
        answer: dict[str, Any] = self._execute_module(task_vars=task_vars)
        report = "; ".join(_report(answer, self._task.args))
        if not report or answer.get("failed"):
            return answer
        return answer | {"msg": report, "_ansible_verbose_always": True}


def _report(answer: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    """What was found of earlier runs, and what is left to a person at the end."""
    if pruned := answer.get("pruned"):
        yield (
            f"{', '.join(pruned)}: removed, can no longer be restored (node_change_keep_states is"
            f" {given.get('keep')})"
        )
    if stopped := answer.get("stopped"):
        why = f": {stopped['message']}" if stopped["message"] else ""
        yield (
            f"continuing with state {stopped['id']}, which run {stopped['run']} left"
            f" {stopped['status']} at step {stopped['step']} ({stopped['at']}){why}"
        )
    if given.get("state") == "finished":
        yield from answer.get("needs_manual_action") or ()
