"""dpkg's and apt's locks: finds the process that holds one, and waits for it."""

from __future__ import annotations

from typing import Optional

from .. import lock_files
from ..lock_files import DPKG_LOCKS, LockHolder

LOCKS = (*DPKG_LOCKS, "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")


def find_holder(rootfs: str) -> Optional[LockHolder]:
    """The first lock that a process holds, or None. Raises OSError."""
    return lock_files.find_holder(rootfs, LOCKS)


def wait_for_locks(rootfs: str, timeout_s: float) -> str:
    """ "" if no process had a lock, else its holder and the time waited. Raises Locked naming the holder, OSError."""
    return lock_files.wait_for_locks(rootfs, LOCKS, timeout_s)
