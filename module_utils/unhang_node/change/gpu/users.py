"""Lists the processes, services and kernel modules that use the GPUs of this node. Changes
nothing."""

from __future__ import annotations

import os
import re
from typing import Any, Collection, Dict, List, Sequence

from ...base.process import run_process
from ...base.root import Root
from ...base.section import Unread
from ...facts.parse.slurm_conf import settings, slurm_lines
from ...facts.sections.faults import read_boot_time
from ...facts.sections.kubernetes import find_kubelet
from ...facts.sections.processes import MAPS_LIMIT_BYTES, read_holders
from ...facts.sections.reading import first_there, text_if_there
from ...facts.sections.slurm import FOLDERS, SLURMD_PATHS
from ...facts.sections.users import read_users
from ..atomic_files import read_state
from . import services

STATE = "gpu_users"
CALL_DEADLINE_S = 180
CONFIGURATION_DEADLINE_S = 10
# How slurmstepd names itself: one process for each step of each job on the node.
_STEP = re.compile(r"slurmstepd: \[([0-9]{1,12})(?:\.|\])")
# cuInit maps the GPU, before there is a context; a handle of NVML, as monitors have it, maps none
# (NVML, nvidia-smi dmon, nvidia-persistenced, CUDA and torch under driver 580.159.04 on an H200).
_MAPPED_GPU = re.compile(rb" /dev/nvidia\d")
_NO_LOGIN = str(2**32 - 1)  # /proc/<pid>/loginuid of what systemd has started


def read_gpu_users() -> Dict[str, Any]:
    """{processes, services, modules_held, foreign_modules, unload}. Raises OSError, PermissionError
    when other users' processes cannot be seen."""
    root, unread = Root(), Unread()
    units = read_services()
    active = [row["unit"] for row in units if row["active"]]
    holders = read_holders(root, unread, read_users(root), collector=os.getpid())
    denied = [row for row in unread.rows if row["status"] == "denied"]
    if denied:
        raise PermissionError(13, denied[0]["reason"], "/proc")
    modules, rows = read_modules(root), [_row(root, holder, active) for holder in holders]
    computing = {row["unit"] for row in rows if row["computes"]}
    return {
        "processes": [dict(row, computes=row["unit"] in computing) for row in rows],
        "services": units,
        "modules_held": services.modules_held(modules),
        "foreign_modules": services.foreign_modules(modules),
        "unload": services.unload_order(modules),
    }


def read_scheduler() -> str:
    """slurm or kubernetes, whose daemon the node has; none without either, "" with both. Raises
    OSError if that could not be determined."""
    root = Root()
    found = [
        name
        for name, is_there in (
            ("slurm", first_there(root, SLURMD_PATHS) is not None),
            ("kubernetes", bool(find_kubelet(root))),
        )
        if is_there
    ]
    return "none" if not found else found[0] if len(found) == 1 else ""


def read_host() -> Dict[str, Any]:
    """{name, boot_id, booted_at, cluster} of this machine, by which a scheduler's node is known to
    be it; "" and 0 for what cannot be read."""
    root = Root()
    return {
        "cluster": read_cluster(),
        "name": text_if_there(root, "/proc/sys/kernel/hostname").strip(),
        "boot_id": text_if_there(root, "/proc/sys/kernel/random/boot_id").strip(),
        "booted_at": int(read_boot_time(root) or 0),
    }


def read_cluster() -> str:
    """ClusterName of the node's slurm.conf, in lower case as Slurm keeps it; "" if it cannot be
    read. By a program with a deadline: the server of a shared file may be gone."""
    look = 'for each; do if [ -e "$each/slurm.conf" ]; then exec cat "$each/slurm.conf"; fi; done'
    result = run_process(["sh", "-c", look, "sh", *FOLDERS], CONFIGURATION_DEADLINE_S)
    return settings(slurm_lines(result.stdout)).get("clustername", "").lower()


def read_slurm_jobs() -> List[str]:
    """Ids of the jobs of Slurm that have a step on this node, whether or not they hold a GPU.
    Raises OSError."""
    root, found = Root(), set()
    for pid in root.names("/proc"):
        if pid.isdigit():
            try:
                title = (
                    root.text(f"/proc/{pid}/cmdline", 256)
                    if root.line(f"/proc/{pid}/comm") == "slurmstepd"
                    else ""
                )
            except OSError:
                continue  # the process has ended meanwhile
            found.update(_STEP.findall(title))
    return sorted(found, key=int)


def _row(root: Root, holder: Any, active: Collection[str]) -> Dict[str, Any]:
    """unit: of a daemon that systemd has started, None for what may be a job; computes: whether it
    does more with the GPUs than to monitor them."""
    folder = f"/proc/{holder.pid}"  # it may have ended meanwhile
    cgroup, login = (text_if_there(root, f"{folder}/{name}") for name in ("cgroup", "loginuid"))
    unit = services.unit_of(cgroup)
    service = services.service_of(unit, holder.command, active)
    if (holder.where, login) != ("host", _NO_LOGIN):
        unit = None
    return {
        "pid": int(holder.pid),
        "user": holder.user,
        "command": holder.command,
        "devices": list(holder.devices),
        "service": service,
        "unit": unit,
        "computes": not unit or _has_mapped_a_gpu(root, f"{folder}/maps"),
    }


def _has_mapped_a_gpu(root: Root, maps: str) -> bool:
    try:
        return bool(_MAPPED_GPU.search(root.data(maps, MAPS_LIMIT_BYTES)))
    except OSError:
        return True


def read_modules(root: Root) -> services.Modules:
    """Loaded modules as parse_modules returns them; {} on a kernel without modules."""
    try:
        return services.parse_modules(root.text("/proc/modules"))
    except FileNotFoundError:
        return {}


def read_services() -> List[Dict[str, Any]]:
    """[{unit, active, enabled}] of the known services that are installed, in the order in which
    they stop; [] without systemd. Raises OSError."""
    try:
        output = call(
            [
                "systemctl",
                "show",
                "--property=Id,LoadState,ActiveState,UnitFileState",
                *services.SERVICES,
            ]
        )
    except FileNotFoundError:
        return []
    return services.parse_services(output)


def read_stopped() -> List[str]:
    """Units that an earlier run stopped and that have not been started since. Raises ValueError if
    the saved list is broken."""
    return services.stop_order(read_state("/", STATE).get("stopped", ()))


def foreign_users(users: Dict[str, Any]) -> List[str]:
    """A line for each process and kernel module that uses the GPUs and does not belong to a known
    service. users: result of read_gpu_users."""
    rows = [
        f"process {row['pid']} ({row['command']}) of {row['user']}"
        for row in users["processes"]
        if row["service"] is None
    ]
    return rows + ["the kernel module " + name for name in users["foreign_modules"]]


def call(argv: Sequence[str]) -> str:
    """A program's output. Raises OSError with its name and the end of its output if it fails or
    does not end in time."""
    result = run_process(argv, CALL_DEADLINE_S, merged=True)
    if result.is_missing:
        raise FileNotFoundError(2, "no such program on this node", argv[0])
    if result.timed_out:
        raise TimeoutError(110, f"no answer within {CALL_DEADLINE_S} s", " ".join(argv))
    if result.code:
        raise OSError(
            5, f"ended with {result.code}: {result.last_words[-300:]}", " ".join(argv[:4])
        )
    return result.stdout
