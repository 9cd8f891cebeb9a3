"""Brings packages back to what a saved state knows; after a success, after a failure half way, and more than once."""

from __future__ import annotations

from typing import List

from .managers import backend_named
from .saved import read_saved
from .values import Row


def restore_packages(rootfs: str, folder: str, lock_timeout_s: float, check: bool) -> List[Row]:
    """[{name, action, before, after}] of what was brought back, or would be. folder: of the saved state, a path of the node. Raises ValueError, OSError."""
    saved = read_saved(rootfs, folder)
    if saved is None:
        return []
    return backend_named(str(saved.get("manager", "dpkg"))).restore(rootfs, folder, saved, lock_timeout_s, check)
