"""A node without a scheduler: it is free when no process but known services holds a GPU."""

from __future__ import annotations

import time

from ..gpu.users import read_gpu_users
from .reasons import DrainAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


def drain_answer_of_users(users: Dict[str, Any]) -> DrainAnswer:
    """How a node stands by who uses its GPUs (read_gpu_users). It is nobody's drain."""
    rows = [row for row in users["processes"] if row["service"] is None]
    jobs = [
        {"id": str(row["pid"]), "user": row["user"] or "", "state": f"{row['command'] or 'a process'} on {', '.join(row['devices'])}", "ends": ""}
        for row in rows
    ]
    return DrainAnswer(drained=not jobs, by="", reason="", jobs=jobs, owned=False)


def wait_for_gpus(wait_s: float, poll_s: float) -> "Dict[str, Any]":
    """Who uses the GPUs once no job does, or when the time is over. Raises OSError as read_gpu_users does."""
    until = time.monotonic() + wait_s
    while True:
        users = read_gpu_users()
        if not drain_answer_of_users(users).jobs or time.monotonic() >= until:
            return users
        time.sleep(max(0.0, min(poll_s, until - time.monotonic())))
