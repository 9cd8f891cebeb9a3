"""Waits before a reboot until no process changes packages. Apart from the package managers, which
the lock of a node does not need."""

from __future__ import annotations

from .lock_files import DPKG_LOCKS, RPM_LOCKS, wait_for_locks
from .unit import wait_for_earlier


def wait_until_unchanging(rootfs: str, timeout_s: float) -> None:
    """Waits until no process changes packages, because a reboot would interrupt it; a process that
    only fetches does not count. Raises Locked naming it, OSError."""
    wait_for_earlier(timeout_s)
    wait_for_locks(rootfs, (*DPKG_LOCKS, *RPM_LOCKS), timeout_s)
