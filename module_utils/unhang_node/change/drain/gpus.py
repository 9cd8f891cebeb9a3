"""Drain of a node without a scheduler: it is drained when nothing but services and what only
monitors holds a GPU, and no job of Slurm has a step on it."""

from __future__ import annotations

import time

from ..gpu.users import read_gpu_users, read_slurm_jobs
from .reasons import DrainAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple


def drain_answer_of_users(users: Dict[str, Any], slurm_jobs: "List[str]") -> DrainAnswer:
    """The drain state of a node by the users of its GPUs (read_gpu_users) and the jobs of Slurm on
    it (read_slurm_jobs). No one owns such a drain."""
    rows = [row for row in users["processes"] if row["service"] is None and row["computes"]]
    jobs = [
        {
            "id": str(row["pid"]),
            "user": row["user"] or "",
            "state": f"{row['command'] or 'a process'} on {', '.join(row['devices'])}",
            "ends": "",
        }
        for row in rows
    ]
    jobs += [{"id": job, "user": "", "state": "job of Slurm", "ends": ""} for job in slurm_jobs]
    return DrainAnswer(drained=not jobs, by="", reason="", jobs=jobs, owned=False)


def wait_for_jobs(
    wait_s: float, poll_s: float, slurm_alone: bool = False
) -> "Tuple[Dict[str, Any], DrainAnswer]":
    """Waits until the node has no job or the time is over; (users of the GPUs, drain state) then.
    slurm_alone: processes on the GPUs are no jobs, and are not read.

    Raises OSError as read_gpu_users does.
    """
    until = time.monotonic() + wait_s
    while True:
        users: Dict[str, Any] = {"processes": []} if slurm_alone else read_gpu_users()
        answer = drain_answer_of_users(users, read_slurm_jobs())
        if not answer.jobs or time.monotonic() >= until:
            return users, answer
        time.sleep(max(0.0, min(poll_s, until - time.monotonic())))
