"""What a package manager has to be able to do. `managers.py` chooses which one does it."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Sequence

from ...parse.dpkg import Database
from .values import ChangeResult, HoldPlan, Listing, Plan, Request, Row


class Backend(NamedTuple):
    """The functions of one package manager. All of them raise OSError, and ValueError (Refused, Locked) with one line for the operator."""

    name: str
    """As packages.json and the answers have it: dpkg or rpm."""
    plan_change: Callable[[Request, bool], Plan]
    """(request, writes): what would be done. close_plan has to follow, whatever comes of it."""
    apply_change: Callable[[Plan], ChangeResult]
    close_plan: Callable[[Plan], None]
    """Removes what the simulation and the change needed."""
    restore: Callable[[str, str, Dict[str, Any], float, bool], List[Row]]
    """(rootfs, folder of the saved state, its packages.json, lock timeout in s, check): rows of what was brought back, or would be."""
    read_offers: Callable[[str, Sequence[str], bool, float, Sequence[str]], Listing]
    """(rootfs, names and patterns, update the cache, fetch timeout in s, modules)."""
    plan_holds: Callable[[str, Database, Sequence[str], Dict[str, Any]], HoldPlan]
    """(rootfs, database, groups, what package_pin saved before)."""
    set_holds: Callable[[str, Sequence[str], Sequence[str], float], None]
    """(rootfs, names to hold, names to unhold, lock timeout in s)."""
