"""Local disks, RAID arrays and what a crash of the node left behind. Part of section `node`. Reads
only folders and small files; sends no command to a disk."""

from __future__ import annotations

import re
import time

from ...base.parse.values import clean
from ..parse.mdstat import parse_mdstat
from .reading import line_if_there, names_if_there, there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root

NVME = "/sys/class/nvme"
DISKS, RECORDS = 64, 16
# Where the log of a crashed kernel is kept: the firmware's memory, systemd's copy of it, and
# kdump's folders (Ubuntu: 202611200349; Red Hat: host-2026-11-20-03:49:11).
CRASH_FOLDERS = (
    ("/sys/fs/pstore", r"dmesg-"),
    ("/var/lib/systemd/pstore", r"\d{9,20}$|dmesg-"),
    ("/var/crash", r"\d{12}$|.{1,255}-\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d$"),
)


def read_disks(root: Root) -> list[dict[str, Any]]:
    """[{name, model, state}] of the NVMe controllers; state is live on a good one
    (drivers/nvme/host/core.c). Raises OSError without sysfs."""
    if not there(root, "/sys/class"):
        raise FileNotFoundError(2, "no such folder", "/sys/class")
    names = [name for name in names_if_there(root, NVME) if re.match(r"nvme\d{1,4}$", name)]
    return [
        {
            "name": name,
            "model": line_if_there(root, f"{NVME}/{name}/model"),
            "state": line_if_there(root, f"{NVME}/{name}/state"),
        }
        for name in names[:DISKS]
    ]


def read_arrays(root: Root) -> list[dict[str, Any]]:
    """[{name, level, state, disks, disks_working}] of the kernel's RAID arrays; [] without the
    driver for them. Raises OSError."""
    try:
        return parse_mdstat(root.text("/proc/mdstat", 1 << 18))
    except FileNotFoundError:
        return []


def read_crashes(root: Root) -> list[dict[str, Any]]:
    """[{path, day}] of the records of crashed kernels, newest last; day: of the file's last change,
    UTC."""
    found = []
    for folder, pattern in CRASH_FOLDERS:
        for name in names_if_there(root, folder):
            if re.match(pattern, name):
                path = folder + "/" + name
                try:
                    found.append((root.stat(path).st_mtime, path))
                except OSError:
                    continue  # removed meanwhile
    return [
        {
            "path": clean(path, 1024),
            "day": time.strftime("%Y-%m-%d", time.gmtime(max(0.0, changed))),
        }
        for changed, path in sorted(found)[-RECORDS:]
    ]
