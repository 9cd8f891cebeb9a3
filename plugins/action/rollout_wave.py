# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The brake of a rollout, the first task of each batch: counts the verdicts in the journal, and says which nodes of the batch may begin."""

from __future__ import annotations

import sys
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

_TOOLS = [str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")]
sys.path += [folder for folder in _TOOLS if folder not in sys.path]  # plain ansible-playbook may run from an environment without unhang


class ActionModule(ActionBase):
    """For the whole batch: run_once."""

    def run(self, tmp=None, task_vars=None):
        """{wave, begin, postponed, stopped}."""
        super().run(tmp, task_vars)
        from unhang.ansible.rollouts import conductor_of
        from unhang.errors import UserError
        from unhang.rollout.wave_line import wave_line

        options = {"rollout": {"type": "dict", "required": True}, "hosts": {"type": "list", "elements": "str", "required": True}}
        options |= {"max_failed": {"type": "str", "default": "0"}}
        _, given = self.validate_argument_spec(argument_spec=options)
        try:
            admitted = conductor_of(given["rollout"]).begin_wave([str(host) for host in given["hosts"]], task_vars["groups"], given["max_failed"])
        except (UserError, OSError) as problem:
            raise AnsibleActionFail(str(problem)) from None
        return {"changed": False, **admitted, "msg": wave_line(admitted)}
