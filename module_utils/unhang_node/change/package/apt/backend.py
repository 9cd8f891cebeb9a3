"""apt and dpkg as a backend."""

from __future__ import annotations

import shutil
from typing import Sequence

from ...atomic_files import place_of
from ..backend import Backend
from ..offers import chosen_names, installed_rows
from ..programs import private_folder
from ..values import Listing, Request
from .change import apply_change, close_plan, plan_change
from .commands import known_names, make_view, offers_of, update
from .holds import plan_holds
from .installed import read_installed
from .restore import restore, wait_until_free
from .selections import select_packages


def read_offers(
    rootfs: str, patterns: Sequence[str], update_cache: bool, _modules: Sequence[str]
) -> Listing:
    """Versions that the repositories offer. Fetches into a copy of the lists. Raises ValueError,
    OSError."""
    installed = read_installed(rootfs)
    folder = private_folder(rootfs)
    try:
        view = make_view(rootfs, folder, private=True)
        warnings = update(view, Request().fetch_timeout_s) if update_cache else []
        names = chosen_names(patterns, [*known_names(view), *installed.packages])
        offers = offers_of(view, names)
    finally:
        shutil.rmtree(place_of(rootfs, folder), ignore_errors=True)
    return Listing(
        offers=offers,
        installed=installed_rows(installed, names),
        warnings_of_update=warnings,
        manager="dpkg",
        streams={},
    )


APT = Backend(
    name="dpkg",
    plan_change=plan_change,
    apply_change=apply_change,
    close_plan=close_plan,
    wait_until_free=wait_until_free,
    restore=restore,
    read_installed=read_installed,
    read_offers=read_offers,
    plan_holds=plan_holds,
    set_holds=select_packages,
)
