# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""One step of a rollout on one node: asks the state machine whether the node needs it now, and
reports the result. Both are written to the journal first."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

BOOT_ID = re.compile(r"[0-9a-f-]{36}")
# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]


class ActionModule(ActionBase):
    """part: ask, answer, end or proved."""

    def run(self, tmp: str | None = None, task_vars: Any = None) -> dict[str, Any]:
        """ask: {go, order, kind, as_before}; answer: {status, msg}; end: {ended, msg}; proved:
        {msg}, and it fails for a node that is not proved."""
        super().run(tmp, task_vars)
        from unhang.act.rollout.for_ansible import conductor_of
        from unhang.core.errors import UserError

        options = {
            "rollout": {"type": "dict", "required": True},
            "part": {"choices": ["ask", "answer", "end", "proved"], "required": True},
            "step": {"type": "str"},
        }
        options |= {
            "order": {"type": "dict"},
            "status": {"type": "str", "default": "ok"},
            "evidence": {"type": "dict"},
            "max_failed": {"type": "str", "default": "0"},
        }
        _, given = self.validate_argument_spec(argument_spec=options)
        host = str(task_vars["inventory_hostname"])
        try:
            return {
                "changed": False,
                **getattr(self, f"_{given['part']}")(
                    conductor_of(given["rollout"]), host, given, task_vars
                ),
            }
        except (UserError, OSError) as problem:
            raise AnsibleActionFail(str(problem)) from None

    def _ask(self, conductor: Any, host: str, given: Mapping[str, Any], task_vars: Any) -> Any:
        from dataclasses import asdict

        from unhang.act.rollout.steps import TOGETHER
        from unhang.act.rollout.waiting import limit_of

        limit_s = limit_of(given["step"], task_vars, conductor.most_kinds(host))
        order = conductor.ask(
            host, given["step"], task_vars["groups"], given["max_failed"], limit_s
        )
        kind = conductor.kind(host) if order and order.step == TOGETHER else ""
        as_before = bool(order and conductor.standing().node(host).as_before)
        return {
            "go": order is not None,
            "order": asdict(order) if order else {},
            "kind": kind,
            "as_before": as_before,
        }

    def _answer(self, conductor: Any, host: str, given: Mapping[str, Any], task_vars: Any) -> Any:
        from unhang.act.rollout.for_ansible import plain
        from unhang.act.rollout.state_machine import needs_boot_id
        from unhang.act.rollout.steps import Order, StepResult

        order, found = Order(**plain(given["order"])), plain(given["evidence"] or {})
        if given["status"] == "ok" and needs_boot_id(order.step, found):
            found |= self._boot_id()
        status, evidence = conductor.record(order, StepResult(str(given["status"]), found))
        return {
            "status": status,
            "msg": (
                f"{host}: {order.step}"
                f" {status}{': ' + str(evidence['why']) if evidence.get('why') else ''}"
            ),
        }

    def _boot_id(self) -> dict[str, str]:
        """{boot_id} of the node now that the step is over; {} if it cannot be read, and a step that
        needs it has then failed."""
        asked = self._low_level_execute_command("cat /proc/sys/kernel/random/boot_id")
        text = str(asked.get("stdout", "")).strip()
        return {"boot_id": text} if asked.get("rc") == 0 and BOOT_ID.fullmatch(text) else {}

    def _end(self, conductor: Any, host: str, given: Mapping[str, Any], task_vars: Any) -> Any:
        proved, line = conductor.ending(host)
        return {"ended": not proved, "msg": line}

    def _proved(self, conductor: Any, host: str, given: Mapping[str, Any], task_vars: Any) -> Any:
        proved, line = conductor.ending(host, bool(task_vars.get("unhang_command")))
        return {"failed": not proved, "msg": line}
