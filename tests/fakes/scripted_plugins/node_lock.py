"""The lock of a node of tests/support/scripted_rollout.py: held by this run, unless the host's
faults say that another run has taken it. Where it is asked for a boot, it answers as the module
does: refused if the node has another one."""

from __future__ import annotations

import sys

from ansible.plugins.action import ActionBase
from ansible.plugins.loader import action_loader


class ActionModule(ActionBase):
    """Returns a result like the module node_lock."""

    def run(self, tmp=None, task_vars=None):
        """{acquired, holder, boot_id}."""
        super().run(tmp, task_vars)
        host, faults = task_vars["inventory_hostname"], task_vars.get("faults", [])
        if "taken over" in faults:
            return {
                "failed": True,
                "acquired": False,
                "holder": {"run": "another"},
                "msg": "expected the lock of this run, found another's",
            }
        wanted = self._task.args.get("boot_id")
        scripted = sys.modules[action_loader.get("scripted_node", class_only=True).__module__]
        booted = wanted and "boots boot_id" in faults
        now = scripted.boot_of(host, task_vars["scripted_nodes"], booted)
        if wanted and wanted != now:
            why = f"the node has booted: its boot is {now}, not {wanted}"
            return {"failed": True, "acquired": False, "untouched": True, "msg": why}
        return {"changed": False, "acquired": False, "holder": {"run": "this"}, "boot_id": now}
