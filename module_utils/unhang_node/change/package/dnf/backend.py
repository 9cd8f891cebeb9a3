"""dnf and rpm as a backend."""

from __future__ import annotations

from typing import Sequence

from ..backend import Backend
from ..unit import wait_for_earlier
from ..values import PackagePlan
from .change import apply_change, plan_change
from .holds import plan_holds
from .offers import read_offers
from .restore import changed_since, restore


def close_plan(_plan: PackagePlan) -> None:
    """dnf's simulation removes its folder itself."""


def wait_until_free(_rootfs: str, timeout_s: float) -> None:
    """dnf waits for its own lock; here an earlier change of ours is waited for. Raises Locked, OSError."""
    wait_for_earlier(timeout_s)


def set_holds(_rootfs: str, hold: Sequence[str], unhold: Sequence[str], _lock_timeout_s: float) -> None:
    """rpm has no holds: versions are locked in a file, which is saved and restored like any other."""
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
