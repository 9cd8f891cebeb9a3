# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Opens a plan for a rollout: reads and checks it, and makes this ansible-playbook the only
controller that may write the journal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]


class ActionModule(ActionBase):
    """For all hosts at once: run_once."""

    def run(self, tmp: str | None = None, task_vars: Any = None) -> dict[str, Any]:
        """{rollout: {folder, run, epoch, read, ending, soak, is_lost, looks_back}} for the other
        plugins of a rollout."""
        super().run(tmp, task_vars)
        from unhang.act.rollout.conductor import begin
        from unhang.act.rollout.soak import parse_soak
        from unhang.core.ansible.controllers import is_over
        from unhang.core.ansible.reach_options import reach_options
        from unhang.core.errors import UserError

        options = {
            "plan": {"type": "path", "required": True},
            "by": {"type": "str", "required": True},
            "controller": {"type": "dict", "required": True},
        }
        options |= {
            "hosts": {"type": "list", "elements": "str", "default": []},
            "takes_over": {"type": "str", "default": ""},
        }
        options |= {
            "ending": {"type": "str", "default": ""},
            "soak": {"type": "str", "default": ""},
            "command": {"type": "str", "default": ""},
        }
        _, given = self.validate_argument_spec(argument_spec=options)
        evidence = {
            "by": given["by"],
            "controller": given["controller"],
            "options": reach_options(context.CLIARGS),
        }
        hosts = [str(host) for host in given["hosts"]]
        known = task_vars["hostvars"]
        edited = [host for host in hosts if known[host].get("rollout_policy_edited")]
        evidence |= {"policy_edited": edited} if edited else {}
        try:
            parse_soak(given["soak"])  # before a controller is registered
            begun = begin(
                Path(given["plan"]),
                hosts,
                evidence,
                is_over,
                given["takes_over"],
                given["command"],
            )
        except (UserError, OSError) as problem:
            raise AnsibleActionFail(str(problem)) from None
        rollout = {
            **begun,
            "read": os.environ.get("UNHANG_RUN_DIR", ""),
            "ending": given["ending"],
            "soak": given["soak"],
        }
        return {"changed": False, "rollout": {**rollout, **_looks_back(rollout)}}


def _looks_back(rollout: Any) -> dict[str, Any]:
    """Whether the journal was lost, and whether nodes are to be asked again now."""
    from unhang.act.rollout.for_ansible import conductor_of
    from unhang.act.rollout.look_back import due, left_drained
    from unhang.act.rollout.soak import parse_soak

    conductor = conductor_of(rollout)
    return {
        "is_lost": conductor.standing().is_lost,
        "looks_back": due(conductor, parse_soak(rollout["soak"])) is not None
        or bool(left_drained(conductor)),
    }
