"""Surveys a node for the launcher before ranks start there."""

from __future__ import annotations

import json
import os
import pwd
import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

from .limits import VERSION
from .mapped import boot_id
from .roots import rooted

# the driver takes a moment to forget a process that has ended; without persistence mode it takes
# seconds to start
LOOKS, LOOK_AGAIN_S, SMI_S = 3, 1.0, 15.0
MOST_USERS = 16
MPS = "nvidia-cuda-mps"  # its server is no job; the kernel keeps 15 characters of a name
# how slurmstepd names itself: one process for each step of a job on the node
STEP = re.compile(r"slurmstepd: \[([0-9]{1,12})(?:\.|\])")


def survey() -> dict[str, Any]:
    """What a launcher needs to know of this node, from files and ip(8): addresses, routes, GPUs, a
    free port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    return {
        "e": "survey", "hostname": socket.gethostname(), "interfaces": interfaces(),
        "routes": ip_json("route", "show", "table", "all"), "gpus": gpus(),
        "in_use": in_use(), "network": "%s-%d" % (boot_id(), os.stat("/proc/self/ns/net").st_ino),
        "slurm_node": os.environ.get("SLURMD_NODENAME"), "free_port": port,
        "python": sys.version.split()[0], "payload": VERSION,
    }  # fmt: skip


def ip_json(*arguments: Any) -> Any:
    """ip -j's answer, or None."""
    try:
        output = subprocess.run(
            ["ip", "-j", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=5,
            check=False,
        ).stdout
        return json.loads(output)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def interfaces() -> list[dict[str, Any]]:
    """[{name, up, kind, addresses: ["10.0.0.1/24"]}]; kind: bridge, veth, loopback, wireguard ...
    or physical."""
    rows = []
    for row in ip_json("-d", "addr") or []:
        kind = (row.get("linkinfo") or {}).get("info_kind") or (
            "loopback" if row.get("link_type") == "loopback" else "physical"
        )
        addresses = [
            "%s/%s" % (one.get("local"), one.get("prefixlen")) for one in row.get("addr_info") or []
        ]
        rows.append(
            {
                "name": row.get("ifname"),
                "up": "UP" in (row.get("flags") or []),
                "kind": kind,
                "addresses": addresses,
            }
        )
    return rows


def gpus() -> list[dict[str, Any]]:
    """[{model, uuid, pci_address}] from the driver's own files."""
    rows = []
    root = rooted("/proc/driver/nvidia/gpus")
    with suppress(OSError):
        for address in sorted(os.listdir(root)):
            with suppress(OSError), open(
                os.path.join(root, address, "information"), encoding="utf-8", errors="replace"
            ) as lines:
                pairs = dict(line.rstrip().split(":", 1) for line in lines if ":" in line)
                rows.append(
                    {
                        "model": pairs.get("Model", "").strip(),
                        "uuid": pairs.get("GPU UUID", "").strip(),
                        "pci_address": address,
                    }
                )
    return rows


def in_use() -> list[str] | None:
    """A line for each process on the GPUs and each job of Slurm with a step on this node; [] where
    Slurm itself has started this; None if it is not known."""
    if "SLURM_JOB_ID" in os.environ or not gpus():
        return []
    for look in range(LOOKS):
        time.sleep(LOOK_AGAIN_S if look else 0)
        pids = gpu_pids()
        if not pids:
            break
    lines = [line for pid in pids or () for line in described(pid)] + [
        "job %s of Slurm" % job for job in slurm_jobs()
    ]
    return None if pids is None and not lines else lines[:MOST_USERS]


def gpu_pids() -> list[int] | None:
    """Processes that compute on a GPU, of all users; None if nvidia-smi could not say. One that
    hangs in the kernel is left to itself."""
    query = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
    try:
        asked = subprocess.Popen(
            query, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        output = asked.communicate(timeout=SMI_S)[0]
    except OSError:
        return None
    except subprocess.TimeoutExpired:
        asked.kill()
        return None
    words = output.decode("ascii", "replace").split()
    return (
        sorted({int(word) for word in words if word.isdigit()} - {os.getpid()})
        if asked.returncode == 0
        else None
    )


def described(pid: int) -> list[str]:
    """[process 4711 (python3) of alice]; [] for a daemon that is no job. A process of another
    container has a number alone."""
    command, user = "", ""
    with suppress(OSError), open(
        rooted("/proc/%d/comm" % pid), encoding="utf-8", errors="replace"
    ) as source:
        command = source.read().strip()
    with suppress(OSError, KeyError):
        user = pwd.getpwuid(os.stat(rooted("/proc/%d" % pid)).st_uid).pw_name
    if command.startswith(MPS):
        return []
    return [
        "process %d%s%s"
        % (pid, " (%s)" % command if command else "", " of %s" % user if user else "")
    ]


def slurm_jobs() -> list[str]:
    """Ids of the jobs of Slurm with a step on this node, also those that use no GPU."""
    found = set()
    for pid in os.listdir(rooted("/proc")):
        with suppress(OSError):
            if pid.isdigit() and same_machine(pid):
                with open(rooted("/proc/%s/cmdline" % pid), "rb") as source:
                    found.update(STEP.findall(source.read(256).decode("utf-8", "replace")))
    return sorted(found, key=int)


def same_machine(pid: str) -> bool:
    """False for a process of a container, whose slurmd is another node's."""
    try:
        return os.readlink(rooted("/proc/%s/ns/pid" % pid)) == os.readlink("/proc/self/ns/pid")
    except PermissionError:
        return True
