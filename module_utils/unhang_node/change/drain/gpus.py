"""Drain of a node without a scheduler: it is drained when no process but known services holds a GPU."""

from __future__ import annotations

import time

from ..gpu.users import read_gpu_users
from .reasons import DrainAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


def drain_answer_of_users(users: Dict[str, Any]) -> DrainAnswer:
    """The drain state of a node by the users of its GPUs (read_gpu_users). No one owns such a drain."""
    rows = [row for row in users["processes"] if row["service"] is None]
    jobs = [
        {"id": str(row["pid"]), "user": row["user"] or "", "state": f"{row['command'] or 'a process'} on {', '.join(row['devices'])}", "ends": ""}
        for row in rows
    ]
    return DrainAnswer(drained=not jobs, by="", reason="", jobs=jobs, owned=False)


def wait_for_gpus(wait_s: float, poll_s: float) -> "Dict[str, Any]":
    """Waits until no job uses the GPUs or the time is over, and returns their users then. Raises OSError as read_gpu_users does."""
    until = time.monotonic() + wait_s
    while True:
        users = read_gpu_users()
        if not drain_answer_of_users(users).jobs or time.monotonic() >= until:
            return users
        time.sleep(max(0.0, min(poll_s, until - time.monotonic())))
