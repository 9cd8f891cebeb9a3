"""The baseline of a node of tests/support/scripted_rollout.py: a file without content, which a test
makes and the step that removes the baseline removes."""

from __future__ import annotations

from pathlib import Path

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Returns the result of the module node_baseline for a missing baseline."""

    def run(self, tmp=None, task_vars=None):
        """{changed}."""
        super().run(tmp, task_vars)
        if self._task.args.get("state") == "removed":
            Path(task_vars["scripted_nodes"], f"{task_vars['inventory_hostname']}.baseline").unlink(
                missing_ok=True
            )
        return {"changed": False}
