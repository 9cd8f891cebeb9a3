"""The baseline of a node of tests/support/scripted_rollout.py, which is kept nowhere."""

from __future__ import annotations

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Answers as the module node_baseline does when there is none."""

    def run(self, tmp=None, task_vars=None):
        """{changed}."""
        super().run(tmp, task_vars)
        return {"changed": False}
