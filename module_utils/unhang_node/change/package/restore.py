"""Restores packages to a saved state; works after a success, after a failure half way, and
repeatedly.

A package that somebody has changed since is not restored, unless the operator names it.
"""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Sequence, Set

from ..atomic_files import STATES
from ..config.unit_links import keep_links_of_others
from ..journal.saved_states import read_states
from .backend import RestoreRequest
from .managers import backend_named, backend_of
from .restore_plan import kept_as_is, known_versions
from .saved import read_saved
from .values import Row


def restore_packages(
    rootfs: str, folder: str, lock_timeout_s: float, check: bool, named: Sequence[str] = ()
) -> List[Row]:
    """[{name, action, before, after}] of packages that were restored, or would be. folder: of the
    saved state, a path of the node. Raises ValueError, OSError. named: names, or patterns, of
    packages that are restored even if somebody has changed them since."""
    request = _request(rootfs, folder, lock_timeout_s, check, named)
    return (
        backend_named(str(request.saved.get("manager", "dpkg"))).restore(request)
        if request.saved
        else []
    )


def changed_since(rootfs: str, folders: Sequence[str], named: Sequence[str] = ()) -> List[str]:
    """A line for each package that is not restored because somebody has changed it since. folders:
    of the saved states. Raises ValueError, OSError."""
    lines: List[str] = []
    for folder in folders:
        request = _request(rootfs, folder, 0, True, named)
        if request.saved:
            installed = backend_named(str(request.saved.get("manager", "dpkg"))).read_installed(
                rootfs
            )
            found = [
                *kept_as_is(request.saved, installed, request.known, request.named).values(),
                *request.links,
            ]
            lines += [line for line in found if line not in lines]
    return lines


def wait_until_free(rootfs: str, timeout_s: float) -> None:
    """Waits until no other process uses the package manager. Raises Locked naming the holder,
    OSError."""
    backend_of(rootfs).wait_until_free(rootfs, timeout_s)


def _request(
    rootfs: str, folder: str, lock_timeout_s: float, check: bool, named: Sequence[str]
) -> RestoreRequest:
    saved = read_saved(rootfs, folder) or {}
    known = (
        known_versions(
            [saved, *(read_saved(rootfs, newer) for newer in _newer_states(rootfs, folder))]
        )
        if saved
        else {}
    )
    # once a rollback has begun, packages' own scripts may have changed links
    left = _links_left(rootfs, folder) if saved.get("status") == "done" else None
    links = keep_links_of_others(rootfs, saved, left)
    return RestoreRequest(
        rootfs=rootfs,
        folder=folder,
        saved=saved,
        lock_timeout_s=lock_timeout_s,
        check=check,
        known=known,
        named=tuple(named),
        links=tuple(links),
    )


def known_here(rootfs: str) -> Dict[str, Set[Optional[str]]]:
    """{package: versions that unhang found or installed}, by all states that were not rolled back.
    Raises OSError, ValueError."""
    standing = [
        read_saved(rootfs, f"{STATES}/{state['id']}")
        for state in read_states(rootfs)
        if state["status"] not in ("rolled_back", "broken")
    ]
    return known_versions(standing)


def _links_left(rootfs: str, folder: str) -> Optional[Dict[str, str]]:
    name = os.path.basename(folder)
    found = [one for one in read_states(rootfs) if one["id"] == name]
    return ((found[0].get("left") if found else None) or {}).get("links")


def _newer_states(rootfs: str, folder: str) -> List[str]:
    """Folders of the newer states, which depend on this one: a rollback undoes them first, and in a
    preview their changes are still in place."""
    standing = [
        state["id"]
        for state in read_states(rootfs)
        if state["status"] not in ("rolled_back", "broken")
    ]
    state_id = os.path.basename(folder)
    return (
        [f"{STATES}/{newer}" for newer in standing[standing.index(state_id) + 1 :]]
        if state_id in standing
        else []
    )
