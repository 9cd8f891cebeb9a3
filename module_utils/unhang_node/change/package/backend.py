"""The interface of a package manager's backend. `managers.py` chooses one."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ...base.parse.dpkg import Database
from .values import ChangeResult, HoldPlan, Installed, Listing, PackagePlan, Request, Row


class RestoreRequest(NamedTuple):
    """The request for a restore. folder: of the saved state, a path of the node; saved: its
    packages.json; known: {package: versions that unhang found or installed}, in which None is not
    installed; named: names, or patterns, of packages that are restored even if somebody has changed
    them since; links: lines about links of units that stay as somebody has made them since."""

    rootfs: str
    folder: str
    saved: Dict[str, Any]
    lock_timeout_s: float
    check: bool
    known: Mapping[str, Set[Optional[str]]]
    named: Tuple[str, ...]
    links: Tuple[str, ...] = ()


class Backend(NamedTuple):
    """The functions of one package manager. All of them raise OSError, and ValueError (Refused,
    Locked) with one line for the operator."""

    name: str
    """The name in packages.json and in results: dpkg or rpm."""
    plan_change: Callable[[Request, bool], PackagePlan]
    """(request, writes): simulates a change. close_plan must follow in every case."""
    apply_change: Callable[[PackagePlan], ChangeResult]
    close_plan: Callable[[PackagePlan], None]
    """Removes the files of the simulation and the change."""
    wait_until_free: Callable[[str, float], None]
    """(rootfs, timeout in s): returns once no other process uses the package manager."""
    restore: Callable[[RestoreRequest], List[Row]]
    """Returns the packages that were restored, or would be, as rows."""
    read_installed: Callable[[str], Installed]
    read_offers: Callable[[str, Sequence[str], bool, Sequence[str]], Listing]
    """(rootfs, names and patterns, update the cache, modules)."""
    plan_holds: Callable[[str, Database, Sequence[str], Dict[str, Any]], HoldPlan]
    """(rootfs, database, groups, what package_pin saved before)."""
    set_holds: Callable[[str, Sequence[str], Sequence[str], float], None]
    """(rootfs, names to hold, names to unhold, lock timeout in s)."""
