"""The end of a controller: kills its ansible-playbook (SIGKILL) once, at a point of a rollout that is otherwise played as it is.

KILL_POINT: JSON of {when: before or after, step, host, run}. Before: the journal says that the step was begun, and nothing of it is done. After: all of it is
done on the node, and nothing of that is in the journal. Both are starts of tasks of playbooks/tasks/rollout/step.yml, when no worker is at work.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: kill_point
type: aggregate
short_description: Ends ansible-playbook at a point of a rollout
description: See the module.
"""
TASKS = {"before": "Begin without evidence", "after": "Record the result"}


class CallbackModule(CallbackBase):
    """One death."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kill_point"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_task_start(self, task, is_conditional):
        """Kills where the task and the step that the journal has as begun are those asked for."""
        point = json.loads(os.environ["KILL_POINT"])
        if task.name == TASKS[point["when"]] and self._begun(Path(point["run"]), point["host"]) == point["step"]:
            os.kill(os.getpid(), signal.SIGKILL)

    def _begun(self, run, host):
        from unhang.rollout.journal import read_journal
        from unhang.rollout.standing import replay

        return replay(read_journal(run).entries).node(host).begun
