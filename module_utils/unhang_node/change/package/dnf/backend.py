"""dnf and rpm as a backend."""

from __future__ import annotations

import shutil
from typing import Sequence

from ...atomic_files import place_of
from ..backend import Backend
from ..lock_files import RPM_LOCKS, wait_for_locks
from ..offers import chosen_names, installed_rows
from ..programs import private_folder
from ..unit import wait_for_earlier
from ..values import Listing, PackagePlan, Request
from .change import apply_change, plan_change
from .commands import offers_of, private, read_installed_rpms
from .holds import plan_holds
from .modules import offered_streams
from .restore import restore


def close_plan(_plan: PackagePlan) -> None:
    """Does nothing: dnf's simulation removes its folder itself."""


def wait_until_free(rootfs: str, timeout_s: float) -> None:
    """Waits for an earlier change of unhang's, then for a transaction of rpm's. Raises Locked
    naming the holder, OSError."""
    wait_for_earlier(timeout_s)
    wait_for_locks(rootfs, RPM_LOCKS, timeout_s)


def set_holds(
    _rootfs: str, hold: Sequence[str], unhold: Sequence[str], _lock_timeout_s: float
) -> None:
    """Refuses any hold, because rpm has none: versions are locked in a file, which is saved and
    restored like any other."""
    if hold or unhold:
        raise ValueError(
            f"holds of dpkg are asked for on a node of rpm: {', '.join([*hold, *unhold][:8])}"
        )


def read_offers(
    rootfs: str, patterns: Sequence[str], _update_cache: bool, modules: Sequence[str]
) -> Listing:
    """Versions that the repositories offer. dnf itself refreshes old lists. Raises ValueError,
    OSError."""
    installed = read_installed_rpms(rootfs)
    folder = private_folder(rootfs)
    try:
        offers = offers_of(Request(rootfs=rootfs), patterns, folder)
        streams = offered_streams(rootfs, modules, private(folder), Request().fetch_timeout_s)
    finally:
        shutil.rmtree(place_of(rootfs, folder), ignore_errors=True)
    rows = installed_rows(installed, chosen_names(patterns, installed.packages))
    return Listing(
        offers=offers, installed=rows, warnings_of_update=[], manager="rpm", streams=streams
    )


DNF = Backend(
    name="rpm",
    plan_change=plan_change,
    apply_change=apply_change,
    close_plan=close_plan,
    wait_until_free=wait_until_free,
    restore=restore,
    read_installed=read_installed_rpms,
    read_offers=read_offers,
    plan_holds=plan_holds,
    set_holds=set_holds,
)
