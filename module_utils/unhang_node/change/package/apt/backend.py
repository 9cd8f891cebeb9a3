"""apt and dpkg as a backend."""

from __future__ import annotations

from ..backend import Backend
from .change import apply_change, close_plan, plan_change
from .holds import plan_holds
from .offers import read_offers
from .restore import changed_since, restore, wait_until_free
from .selections import select_packages

APT = Backend(
    name="dpkg",
    plan_change=plan_change,
    apply_change=apply_change,
    close_plan=close_plan,
    wait_until_free=wait_until_free,
    restore=restore,
    changed_since=changed_since,
    read_offers=read_offers,
    plan_holds=plan_holds,
    set_holds=select_packages,
)
