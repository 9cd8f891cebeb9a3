"""The lock of a node of tests/support/scripted_rollout.py: held by this run, unless the host's
faults say that another run has taken it, and it is in the boot `boot_id` of the order."""

from __future__ import annotations

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Returns a result like the module node_lock."""

    def run(self, tmp=None, task_vars=None):
        """{acquired, holder}."""
        super().run(tmp, task_vars)
        if "taken over" in task_vars["faults"]:
            return {
                "failed": True,
                "acquired": False,
                "holder": {"run": "another"},
                "msg": "expected the lock of this run, found another's",
            }
        wanted, now = (self._task.args.get(name, "") for name in ("boot_id", "now"))
        if now and wanted not in ("", now):
            why = f"expected the boot {wanted}, found {now}"
            return {"failed": True, "acquired": False, "untouched": True, "msg": why}
        return {"changed": False, "acquired": False, "holder": {"run": "this"}, "boot_id": now}
