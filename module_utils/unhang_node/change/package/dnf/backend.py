"""dnf and rpm as a backend."""

from __future__ import annotations

from typing import Sequence

from ..backend import Backend
from ..lock_files import RPM_LOCKS, wait_for_locks
from ..unit import wait_for_earlier
from ..values import PackagePlan
from .change import apply_change, plan_change
from .holds import plan_holds
from .offers import read_offers
from .restore import changed_since, restore


def close_plan(_plan: PackagePlan) -> None:
    """Does nothing: dnf's simulation removes its folder itself."""


def wait_until_free(rootfs: str, timeout_s: float) -> None:
    """Waits for an earlier change of unhang's, then for a transaction of rpm's. Raises Locked naming the holder, OSError."""
    wait_for_earlier(timeout_s)
    wait_for_locks(rootfs, RPM_LOCKS, timeout_s)


def set_holds(_rootfs: str, hold: Sequence[str], unhold: Sequence[str], _lock_timeout_s: float) -> None:
    """Refuses any hold, because rpm has none: versions are locked in a file, which is saved and restored like any other."""
    if hold or unhold:
        raise ValueError(f"expected no holds of dpkg on a node of rpm, found {', '.join([*hold, *unhold][:8])}")


DNF = Backend(
    name="rpm",
    plan_change=plan_change,
    apply_change=apply_change,
    close_plan=close_plan,
    wait_until_free=wait_until_free,
    restore=restore,
    changed_since=changed_since,
    read_offers=read_offers,
    plan_holds=plan_holds,
    set_holds=set_holds,
)
