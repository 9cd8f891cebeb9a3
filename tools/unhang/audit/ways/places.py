"""How many ssh processes may run at a time, so that dead nodes cost one connect deadline in all and
not one for each place."""

from __future__ import annotations

import contextlib
import resource
import time
from typing import Any

from ClusterShell.Event import EventHandler

TICK_S = 0.25
SILENT_S, LONGEST_SILENT_S = 1.0, 5.0  # of a node that has not said its first word
SLOWER = 3  # times the usual first word
MOST_TIMES = 16  # the processes that are asked for
PIPES, OTHER_FILES = 3, 128  # of a process, and of this one


class Places(EventHandler):
    """ClusterShell's fan-out is for the nodes that answer. One that stays silent keeps no place,
    and another one more is asked: a rack without power is asked in seconds, and its processes wait
    for ssh's connect deadline side by side."""

    def __init__(self, task: Any, fanout: int) -> None:
        self.task, self.fanout = task, fanout
        self.most = max(fanout, min(MOST_TIMES * fanout, _processes_by_files(MOST_TIMES * fanout)))
        self.silent: dict[str, float] = {}  # since when, in the order of their start
        self.first_word_s = 0.0  # as usual lately
        task.set_info("fanout", fanout)
        task.timer(TICK_S, self, interval=TICK_S, autoclose=True)

    def asked(self, key: str) -> None:
        """Its ssh starts."""
        self.silent[key] = time.monotonic()

    def spoke(self, key: str) -> None:
        """It has said something, or has ended."""
        since = self.silent.pop(key, None)
        if since is not None:
            self.first_word_s += (time.monotonic() - since - self.first_word_s) / 16

    def ev_timer(self, timer: Any) -> None:
        """Lends the places of silent nodes, and takes them back when they speak."""
        now, patience_s = (
            time.monotonic(),
            min(max(SILENT_S, SLOWER * self.first_word_s), LONGEST_SILENT_S),
        )
        silent = sum(now - since > patience_s for since in self.silent.values())
        places = min(self.fanout + 2 * silent, self.most)
        if places != self.task.info("fanout"):
            self.task.set_info("fanout", places)
            # ClusterShell looks at a changed fan-out only when a process ends
            self.task._engine.start_clients()


def _processes_by_files(wanted: int) -> int:
    """How many processes' pipes this process may have open; the soft limit is raised for them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = PIPES * wanted + OTHER_FILES
    if soft < needed:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(
                resource.RLIMIT_NOFILE,
                (needed if hard == resource.RLIM_INFINITY else min(needed, hard), hard),
            )
    return (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OTHER_FILES) // PIPES
