# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Ends playbooks/preprovision.yml for one node with its outcome: ok, failed, or unreachable if the
node could not be examined."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Makes ansible-playbook end with 0 if all nodes passed, 2 if a node failed, 4 if none failed
    and not all were proved."""

    def run(self, tmp: str | None = None, task_vars: Any = None) -> dict[str, Any]:
        """{msg}, with failed or unreachable."""
        super().run(tmp, task_vars)
        options = {"decisions": {"type": "dict", "required": True}}
        _, given = self.validate_argument_spec(argument_spec=options)
        decisions = given["decisions"]
        own = decisions[str(task_vars["inventory_hostname"])]
        message = (
            f"{own['outcome']}: {'; '.join(own['reasons'])}" if own["reasons"] else own["outcome"]
        )
        if own["outcome"] == "pass":
            return {"changed": False, "msg": message}
        # Ansible's exit code for unreachable nodes would hide the code for a failed node.
        anybody_failed = any(row["outcome"] == "fail" for row in decisions.values())
        ending = (
            {"failed": True}
            if own["outcome"] == "fail" or anybody_failed
            else {"unreachable": True}
        )
        return {"changed": False, "msg": message, **ending}
