"""What a package manager has to be able to do. `managers.py` chooses which one does it."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ...parse.dpkg import Database
from .values import ChangeResult, HoldPlan, Listing, PackagePlan, Request, Row


class RestoreRequest(NamedTuple):
    """What a restore is asked for.

    folder: of the saved state, a path of the node; saved: its packages.json; known: {package: versions that unhang itself found or left}, None among them for
    not installed; named: names, or patterns, of packages that are restored whoever changed them since.
    """

    rootfs: str
    folder: str
    saved: Dict[str, Any]
    lock_timeout_s: float
    check: bool
    known: Mapping[str, Set[Optional[str]]]
    named: Tuple[str, ...]


class Backend(NamedTuple):
    """The functions of one package manager. All of them raise OSError, and ValueError (Refused, Locked) with one line for the operator."""

    name: str
    """As packages.json and the answers have it: dpkg or rpm."""
    plan_change: Callable[[Request, bool], PackagePlan]
    """(request, writes): what would be done. close_plan has to follow, whatever comes of it."""
    apply_change: Callable[[PackagePlan], ChangeResult]
    close_plan: Callable[[PackagePlan], None]
    """Removes what the simulation and the change needed."""
    wait_until_free: Callable[[str, float], None]
    """(rootfs, timeout in s): returns once no other process has the package manager."""
    restore: Callable[[RestoreRequest], List[Row]]
    """Rows of what was brought back, or would be."""
    changed_since: Callable[[RestoreRequest], List[str]]
    """A line for each package that stays because somebody has changed it since."""
    read_offers: Callable[[str, Sequence[str], bool, float, Sequence[str]], Listing]
    """(rootfs, names and patterns, update the cache, fetch timeout in s, modules)."""
    plan_holds: Callable[[str, Database, Sequence[str], Dict[str, Any]], HoldPlan]
    """(rootfs, database, groups, what package_pin saved before)."""
    set_holds: Callable[[str, Sequence[str], Sequence[str], float], None]
    """(rootfs, names to hold, names to unhold, lock timeout in s)."""
