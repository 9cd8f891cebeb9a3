# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The failure limit of a rollout, the first task of each wave: counts the verdicts in the journal,
and returns which nodes of the wave may begin."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]


class ActionModule(ActionBase):
    """For the whole wave: run_once."""

    def run(self, tmp: str | None = None, task_vars: Any = None) -> dict[str, Any]:
        """begin: {wave, begin, postponed, stopped}; floor, look_back, soak, rebuild: {msg}."""
        super().run(tmp, task_vars)
        from unhang.act.rollout.failure_limit import wave_line
        from unhang.act.rollout.for_ansible import conductor_of
        from unhang.act.rollout.soak import parse_soak
        from unhang.core.errors import UserError

        options = {
            "rollout": {"type": "dict", "required": True},
            "hosts": {"type": "list", "elements": "str", "required": True},
        }
        options |= {
            "max_failed": {"type": "str", "default": "0"},
            "part": {
                "choices": ["begin", "floor", "look_back", "soak", "rebuild"],
                "default": "begin",
            },
        }
        options |= {
            "states": {"type": "dict"},
            "adapter": {"type": "str", "default": "none"},
            "unlisted": {"type": "str", "default": ""},
        }
        _, given = self.validate_argument_spec(argument_spec=options)
        try:
            conductor, part = conductor_of(given["rollout"]), given["part"]
            soak_s = parse_soak(str(given["rollout"].get("soak") or ""))
            if part == "begin":
                hosts = [str(host) for host in given["hosts"]]
                admitted = conductor.begin_wave(
                    hosts, task_vars["groups"], given["max_failed"], soak_s
                )
                return {"changed": False, **admitted, "msg": wave_line(admitted)}
            line = {
                "floor": lambda: self._keep_floor(conductor, given, task_vars),
                "look_back": lambda: self._look_back(conductor, given, task_vars, soak_s),
                "rebuild": lambda: conductor.rebuild(_kept_by_nodes(given["hosts"], task_vars)),
                "soak": lambda: conductor.soak_at_the_end(soak_s),
            }[part]()
            return {"changed": False, "msg": line}
        except (UserError, OSError) as problem:
            raise AnsibleActionFail(str(problem)) from None

    def _keep_floor(self, conductor: Any, given: Mapping[str, Any], task_vars: Any) -> Any:
        from unhang.act.rollout.floor import service_of

        if given["unlisted"]:
            return conductor.keep_no_room(given["unlisted"])
        if not given["states"]:
            return conductor.keep_floor(
                None, f"the drain adapter {given['adapter']} lists no nodes"
            )
        hosts = conductor.fleet([str(host) for host in task_vars["groups"]["all"]])
        return conductor.keep_floor(
            service_of(given["states"], hosts, _name_in_scheduler(task_vars))
        )

    def _look_back(
        self, conductor: Any, given: Mapping[str, Any], task_vars: Any, soak_s: int
    ) -> Any:
        from unhang.act.rollout.floor import service_of
        from unhang.act.rollout.look_back import due, left_drained, look_back, note_service

        name_of, asked, line = _name_in_scheduler(task_vars), due(conductor, soak_s), ""
        if given["states"]:
            left = left_drained(conductor)
            line = note_service(conductor, service_of(given["states"], left, name_of))
        if asked is None or given["unlisted"]:
            why = given["unlisted"] or "nothing is due"
            return line or f"released nodes were not asked again: {why}"
        service = service_of(given["states"], asked.hosts, name_of) if given["states"] else None
        if service is not None and service.unknown:
            who = ", ".join(sorted(service.unknown))
            return f"released nodes were not asked again: the scheduler does not know yet of {who}"
        return look_back(conductor, asked, service)


def _kept_by_nodes(hosts: Any, task_vars: Any) -> dict[str, Any]:
    """What tasks/rollout/rebuild.yml has read of each host; hosts that did not answer are left
    out."""
    from unhang.act.rollout.rebuilding import Kept

    found = {str(host): task_vars["hostvars"][host].get("rollout_kept") for host in hosts}
    return {
        host: Kept(
            str(one["boot_id"]),
            [dict(state) for state in one["states"]],
            bool(one["has_baseline"]),
            str(one["lock"]),
        )
        for host, one in found.items()
        if one
    }


def _name_in_scheduler(task_vars: Any) -> Any:
    """A host's name in the scheduler."""
    return lambda host: str(task_vars["hostvars"][host].get("drain_node") or host)
