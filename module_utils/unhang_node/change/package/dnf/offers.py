"""Versions that dnf's repositories offer, in every module stream. dnf itself refreshes old lists."""

from __future__ import annotations

import shutil
from typing import Sequence

from ...atomic_files import place_of
from ..offers import chosen_names, installed_rows
from ..programs import private_folder
from ..values import Listing, Request
from .commands import offers_of, private, read_installed_rpms
from .modules import offered_streams


def read_offers(rootfs: str, patterns: Sequence[str], _update_cache: bool, fetch_timeout_s: float, modules: Sequence[str]) -> Listing:
    """Raises ValueError, OSError."""
    installed = read_installed_rpms(rootfs)
    folder = private_folder(rootfs)
    try:
        offers = offers_of(Request(rootfs=rootfs, fetch_timeout_s=fetch_timeout_s), patterns, folder)
        streams = offered_streams(rootfs, modules, private(folder), fetch_timeout_s)
    finally:
        shutil.rmtree(place_of(rootfs, folder), ignore_errors=True)
    rows = installed_rows(installed, chosen_names(patterns, installed.packages))
    return Listing(offers=offers, installed=rows, warnings_of_update=[], manager="rpm", streams=streams)
