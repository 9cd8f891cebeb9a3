"""The end of a controller: kills its ansible-playbook (SIGKILL) once, at a point of a rollout that is otherwise played as it is.

KILL_POINT: JSON of {when, step, host, run, mark}; when is one of

    before   the journal says that the step was begun, and nothing of it is done
    within   the node is in the middle of the step: it has written to the file `mark`; what it runs for the controller goes on without it
    after    all of it is done on the node, and nothing of that is in the journal
    done     the journal says that the step was done, and the next one was not begun

All but `within` are starts of tasks of playbooks/tasks/rollout/step.yml, when no worker is at work.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: kill_point
type: aggregate
short_description: Ends ansible-playbook at a point of a rollout
description: See the module.
"""
FIRST, LAST, NEXT = "Begin without evidence", "Record the result", "Check whether the node needs this step now"
TASKS = {"before": (FIRST, "begun"), "within": (FIRST, "begun"), "after": (LAST, "begun"), "done": (NEXT, "done")}
PAUSE_S = 0.02


class CallbackModule(CallbackBase):
    """One death."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kill_point"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_task_start(self, task, is_conditional):
        """Kills where the task is the one asked for, and the step the last that the journal has of the host."""
        point = json.loads(os.environ["KILL_POINT"])
        name, status = TASKS[point["when"]]
        if task.name != name or self._last(Path(point["run"]), point["host"]) != (point["step"], status):
            return
        if point["when"] != "within":
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Thread(target=kill_all_when_written, args=(Path(point["mark"]),), daemon=True).start()

    def _last(self, run, host):
        """(step, status) of the newest entry about the host, of this controller's."""
        from unhang.rollout.journal import read_journal

        found = None
        for one in read_journal(run).entries:
            found = (one.step, one.status) if one.host == host else None if one.step == "rollout" else found
        return found


def kill_all_when_written(mark):
    """Kills this process and all that it has started, ssh with them, once somebody writes to the file."""
    size = size_of(mark)
    while size_of(mark) == size:
        time.sleep(PAUSE_S)
    for pid in reversed(descendants(os.getpid())):
        os.kill(pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def size_of(path):
    """Bytes; None where there is none."""
    return path.stat().st_size if path.exists() else None


def descendants(pid):
    """Every process that it has started, and theirs; each behind its parent."""
    children = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found = list(children.get(pid, []))
    for one in found:
        found += children.get(one, [])
    return found
