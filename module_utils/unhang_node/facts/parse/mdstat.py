"""The kernel's list of its RAID arrays, /proc/mdstat. Text in, rows out (md(4); drivers/md/md.c
prints it)."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ARRAYS = 64


def parse_mdstat(text: str) -> list[dict[str, Any]]:
    """[{name, level, state, disks, disks_working}] of arrays; disks are None for an array that is
    not active or has no redundancy."""
    rows: list[dict[str, Any]] = []
    for line in text.splitlines():
        head = re.match(
            r"(md[\w-]{1,32}) : (active|inactive)(?: \((?:auto-)?read-only\))?(?:"
            r" (raid\d{1,2}|linear|multipath))?(?: |$)",
            line,
        )
        if head and len(rows) < ARRAYS:
            rows.append(
                {
                    "name": head.group(1),
                    "level": head.group(3),
                    "state": head.group(2),
                    "disks": None,
                    "disks_working": None,
                }
            )
            continue
        numbers = re.search(r" \[(\d{1,4})/(\d{1,4})\] \[[U_]{1,4096}\]", line)
        if numbers and rows and rows[-1]["disks"] is None:
            rows[-1].update(disks=int(numbers.group(1)), disks_working=int(numbers.group(2)))
    return rows
