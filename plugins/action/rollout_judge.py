# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""The audit's judge for the playbooks that change nodes: of all nodes before anything is changed,
and of one node after it. In the worker itself: the process that forked it has the rules already."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [
    str(Path(__file__).resolve().parents[2] / name) for name in ("tools", "module_utils")
]
AGAIN_S = 10


class ActionModule(ActionBase):
    """part: begin or prove."""

    def run(self, tmp: str | None = None, task_vars: Any = None) -> dict[str, Any]:
        """begin: {nodes}; prove: {proof, again, since}, and it fails for a node that is not proved
        healthy and of whose hardware nothing can come up any more."""
        super().run(tmp, task_vars)
        from unhang.act.rollout.for_ansible import plain
        from unhang.act.rollout.rollout import begin
        from unhang.core.errors import UserError
        from unhang.core.run.run_folder import utc_now

        options = {
            "part": {"choices": ["begin", "prove"], "required": True},
            "before": {"default": ""},
            "severities": {"type": "list", "elements": "str"},
            "baseline": {"type": "dict"},
        }
        options |= {
            "about": {"type": "dict", "default": {}},
            "rolled_back": {"type": "bool", "default": False},
            "found_by_this_run": {"type": "bool", "default": False},
            "beside": {"default": ""},
        }
        options |= {
            "pending": {"default": ""},
            "wait_s": {"type": "int", "default": 0},
            "since": {"type": "float", "default": time.monotonic()},
        }
        _, found = self.validate_argument_spec(argument_spec=options)
        given, run, today = plain(found), Path(os.environ["UNHANG_RUN_DIR"]), utc_now()[:10]
        try:
            if given["part"] == "begin":
                before = Path(given["before"]) if given["before"] else None
                return {"changed": False, **begin(run, today, before)}
            proof = _prove(run, str(task_vars["inventory_hostname"]), given, today)
        except (UserError, OSError, ValueError) as problem:
            raise AnsibleActionFail(str(problem)) from None
        answer = {"changed": False, "proof": proof, "since": given["since"], "again": False}
        answer["_ansible_verbose_always"] = True  # printed as that of debug is
        if proof["lost"] and time.monotonic() + AGAIN_S < given["since"] + given["wait_s"]:
            time.sleep(AGAIN_S)
            return answer | {"again": True, "msg": proof["lost"]}
        if why := given["pending"]:
            proof["reasons"].append(f"a reboot is needed: {why}; -e unhang_reboot=true does it")
        return answer | {"failed": bool(proof["reasons"]), "msg": "; ".join(proof["reasons"])}


def _prove(run: Path, host: str, given: Mapping[str, Any], today: str) -> dict[str, Any]:
    from unhang.act.rollout.baseline import from_document
    from unhang.act.rollout.kept import baseline_beside
    from unhang.act.rollout.proof import Asked
    from unhang.act.rollout.rollout import prove_node

    about, beside = given["about"], Path(given["beside"]) if given["beside"] else None
    asked = Asked(
        given["severities"],
        about.get("roles", ()),
        rolled_back=given["rolled_back"],
        found_by_this_run=given["found_by_this_run"],
        for_a_person=about.get("for_a_person", ()),
    )
    if beside and given["baseline"] is None:
        baseline = baseline_beside(beside, host)
    else:
        baseline = from_document(given["baseline"])
    return prove_node(run, host, today, about, asked, baseline, beside)
