"""Kills a controller: sends SIGKILL to its ansible-playbook once, at a point of a rollout that is
otherwise unchanged.

KILL_POINT: JSON of {when, step, host, run, mark}; when is one of

    before   the journal has the step as begun, and the node has done nothing of it within   the
    node is in the middle of the step: it has written to the file `mark`; its work for the
    controller continues without the controller
    after    the node has done all of it, and the journal has no result
    done     the journal has the step as done, and the next one was not begun

All but `within` are at the start of tasks of playbooks/tasks/rollout/step.yml, when no worker is at
work.
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
FIRST, LAST, NEXT = (
    "Begin without evidence",
    "Record the result",
    "Check whether the node needs this step now",
)
TASKS = {
    "before": (FIRST, "begun"),
    "within": (FIRST, "begun"),
    "after": (LAST, "begun"),
    "done": (NEXT, "done"),
}
PAUSE_S = 0.02


class CallbackModule(CallbackBase):
    """One kill."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "kill_point"
    CALLBACK_NEEDS_ENABLED = True

    def v2_playbook_on_task_start(self, task, is_conditional):
        """Kills at the requested task, if the step is the last one that the journal has of the
        host."""
        point = json.loads(os.environ["KILL_POINT"])
        name, status = TASKS[point["when"]]
        if task.name != name or self._last(Path(point["run"]), point["host"]) != (
            point["step"],
            status,
        ):
            return
        if point["when"] != "within":
            os.kill(os.getpid(), signal.SIGKILL)
        threading.Thread(
            target=kill_all_when_written, args=(Path(point["mark"]),), daemon=True
        ).start()

    def _last(self, run, host):
        """(step, status) of the newest entry about the host from this controller."""
        from unhang.act.rollout.journal import read_journal

        found = None
        for one in read_journal(run).entries:
            found = (
                (one.step, one.status)
                if one.host == host
                else None
                if one.step == "rollout"
                else found
            )
        return found


def kill_all_when_written(mark):
    """Kills this process and all that it has started, ssh included, when the file is written to."""
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
    """Every descendant of the process; each after its parent."""
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
