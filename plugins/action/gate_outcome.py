# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ends playbooks/preprovision.yml for one node with its outcome: ok, failed, or unreachable, which is how Ansible says that a node could not be looked at."""

from __future__ import annotations

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """So that ansible-playbook ends with 0 when all passed, 2 when a node failed, 4 when none failed and not all were proved."""

    def run(self, tmp=None, task_vars=None):
        """{msg}, with failed or unreachable."""
        super().run(tmp, task_vars)
        options = {"decisions": {"type": "dict", "required": True}}
        _, given = self.validate_argument_spec(argument_spec=options)
        decisions = given["decisions"]
        own = decisions[str(task_vars["inventory_hostname"])]
        message = f"{own['outcome']}: {'; '.join(own['reasons'])}" if own["reasons"] else own["outcome"]
        if own["outcome"] == "pass":
            return {"changed": False, "msg": message}
        # Ansible's code for unreachable would hide that of another node's failure.
        anybody_failed = any(row["outcome"] == "fail" for row in decisions.values())
        ending = {"failed": True} if own["outcome"] == "fail" or anybody_failed else {"unreachable": True}
        return {"changed": False, "msg": message, **ending}
