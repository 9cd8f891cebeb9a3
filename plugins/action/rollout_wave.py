# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The failure limit of a rollout, the first task of each wave: counts the verdicts in the journal, and returns which nodes of the wave may begin."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

_TOOLS = [str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")]
sys.path += [folder for folder in _TOOLS if folder not in sys.path]  # plain ansible-playbook may run from an environment without unhang


class ActionModule(ActionBase):
    """For the whole wave: run_once."""

    def run(self, tmp: str | None = None, task_vars: Any = None) -> dict[str, Any]:
        """begin: {wave, begin, postponed, stopped}; floor: {msg}."""
        super().run(tmp, task_vars)
        from unhang.ansible.rollouts import conductor_of
        from unhang.base.errors import UserError
        from unhang.repair.rollout.wave_line import wave_line

        options = {"rollout": {"type": "dict", "required": True}, "hosts": {"type": "list", "elements": "str", "required": True}}
        options |= {"max_failed": {"type": "str", "default": "0"}, "part": {"choices": ["begin", "floor"], "default": "begin"}}
        options |= {"states": {"type": "dict"}, "adapter": {"type": "str", "default": "none"}, "unlisted": {"type": "str", "default": ""}}
        _, given = self.validate_argument_spec(argument_spec=options)
        try:
            if given["part"] == "floor":
                return {"changed": False, "msg": self._keep_floor(conductor_of(given["rollout"]), given, task_vars)}
            admitted = conductor_of(given["rollout"]).begin_wave([str(host) for host in given["hosts"]], task_vars["groups"], given["max_failed"])
        except (UserError, OSError) as problem:
            raise AnsibleActionFail(str(problem)) from None
        return {"changed": False, **admitted, "msg": wave_line(admitted)}

    def _keep_floor(self, conductor: Any, given: Mapping[str, Any], task_vars: Any) -> Any:
        from unhang.repair.rollout.floor import service_of

        if given["unlisted"]:
            return conductor.keep_no_room(given["unlisted"])
        if not given["states"]:
            return conductor.keep_floor(None, f"the drain adapter {given['adapter']} lists no nodes")
        hostvars = task_vars["hostvars"]
        hosts = conductor.fleet([str(host) for host in task_vars["groups"]["all"]])
        return conductor.keep_floor(service_of(given["states"], hosts, lambda host: str(hostvars[host].get("drain_node") or host)))
