"""The processes on a GPU: NVML reports pid and memory, procfs the rest. Only the short name of a
process is read, never its command line."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..root import Root
    from .calls import Asking

MIB = 1024.0 * 1024.0
MOST_ROWS = 256
KINDS = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
CONTAINER = re.compile(
    r"docker|kubepods|containerd|libpod|crio|lxc|enroot|apptainer|singularity|/machine\.slice/"
)


def read_processes(
    asking: Asking, root: Root, owners: dict[int, dict[str, str | None]]
) -> list[dict[str, Any]] | None:
    """[{pid, user, command, where, memory_mib, use}] of one GPU, or None with the reason noted.
    owners: a cache of procfs."""
    rows, seen = [], False
    for use, name in KINDS:
        found = asking.ask_first(
            "processes", (name + "_v3", asking.handle), (name + "_v2", asking.handle)
        )
        if found is None:
            continue
        seen = True
        for process in found:
            memory = getattr(process, "usedGpuMemory", None)
            if process.pid not in owners:
                owners[process.pid] = read_owner(root, process.pid)
            row = {"pid": process.pid}
            row.update(owners[process.pid])
            row["memory_mib"] = None if memory is None or memory == 2**64 - 1 else memory / MIB
            row["use"] = use
            rows.append(row)
    return rows[:MOST_ROWS] if seen else None


def read_owner(root: Root, pid: int) -> dict[str, str | None]:
    """{user, command, where} from procfs; None for values that are gone or may not be read."""
    folder = f"/proc/{pid}"
    owner: dict[str, str | None] = {"user": None, "command": None, "where": None}
    try:
        owner["command"] = root.line(folder + "/comm")
        owner["user"] = user_of(root, folder)
        owner["where"] = (
            "container" if CONTAINER.search(root.text(folder + "/cgroup", 65536)) else "host"
        )
    except (OSError, ValueError):
        pass
    return owner


def user_of(root: Root, folder: str) -> str:
    """The name that /etc/passwd has for the process's real user id, else the number. No name
    service: it may hang."""
    status = root.text(folder + "/status", 65536)
    uid = next(line.split()[1] for line in status.splitlines() if line.startswith("Uid:"))
    for line in root.text("/etc/passwd").splitlines():
        parts = line.split(":")
        if len(parts) > 2 and parts[2] == uid:
            return parts[0]
    return uid
