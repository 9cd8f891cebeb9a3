"""Newer driver, kernel and NCCL packages in apt's package lists on the node. Fetches nothing, does
not run apt."""

from __future__ import annotations

import mmap
import os

from ...base.untrusted_files import names_or_none, open_regular, read_text
from ..parse.apt import candidate_of, offered_versions, pin_priority, release_priority
from .package_database import DRIVER, KERNEL, NCCL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any

    from ...base.parse.dpkg import Database, Package
    from ...base.root import Root
    from ...base.section import Unread

LISTS = "/var/lib/apt/lists"
# Reading all lists of a large distribution would cost more than the rest of the collector: see
# docs/collector.md.
BUDGET_BYTES = 96 << 20
ENDING = "_Packages"
COMPRESSED = (
    "_Packages.lz4",
    "_Packages.gz",
    "_Packages.xz",
    "_Packages.zst",
    "_Packages.bz2",
    "_Packages.lzma",
)
# Components of Ubuntu and Debian without a driver, kernel or NCCL; their lists are the largest.
NEVER_HERE = ("_universe_",)
RELEASE_HEAD_BYTES = 8192


def read_pending(
    root: Root, unread: Unread, database: Database, pins: list[dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """[{name, installed, candidate}], or None when no list could be read."""
    watched = [
        package
        for package in database.named(DRIVER + KERNEL + NCCL)
        if package.state == "installed"
    ]
    if not watched:
        return []
    try:
        names = names_or_none(root, LISTS)
    except OSError as problem:
        unread.of_error("pending", problem)
        return None
    packed = [
        name
        for name in names
        if name.endswith(COMPRESSED) and not any(part in name for part in NEVER_HERE)
    ]
    if packed:
        unread.add(
            "pending",
            "error",
            f"{len(packed)} lists in {LISTS} are compressed, not read: {packed[0]} …",
        )
    lists = [
        name
        for name in names
        if name.endswith(ENDING) and not any(part in name for part in NEVER_HERE)
    ]
    offers: dict[str, list[tuple[str, int]]] = {}
    read_any = False
    for name in _within_budget(root, unread, lists):
        found = unread.attempt(
            "pending", _offers_of, root, name, frozenset(package.name for package in watched)
        )
        read_any = read_any or found is not None
        priority = _default_priority(root, name)
        for package, versions in (found or {}).items():
            offers.setdefault(package, []).extend(
                (version, pin_priority(pins, package, version, priority)) for version in versions
            )
    if not read_any:
        if not packed:
            unread.add("pending", "absent", "no package lists in " + LISTS)
        return None
    return _rows(watched, offers)


def _rows(
    watched: Iterable[Package], offers: dict[str, list[tuple[str, int]]]
) -> list[dict[str, Any]]:
    rows = []
    for package in watched:
        candidate = candidate_of(package.version, offers.get(package.name, []))
        row = {"name": package.name, "installed": package.version, "candidate": candidate}
        if candidate and row not in rows:
            rows.append(row)
    return rows[:512]


def _within_budget(root: Root, unread: Unread, names: list[str]) -> list[str]:
    """Names of the lists to read, small ones first; lists that exceed the budget are noted."""
    sized = []
    for name in names:
        try:
            sized.append((root.stat(LISTS + "/" + name).st_size, name))
        except OSError as problem:
            unread.of_error("pending", problem)
    taken, remaining_bytes = [], BUDGET_BYTES
    for size, name in sorted(sized):
        if size <= remaining_bytes:
            taken.append(name)
            remaining_bytes -= size
        else:
            unread.add(
                "pending",
                "error",
                f"{name} has {size} bytes: lists of {BUDGET_BYTES} bytes in all are read",
            )
    return taken


def _offers_of(root: Root, name: str, packages: Collection[str]) -> dict[str, list[str]]:
    descriptor = open_regular(root, LISTS + "/" + name)
    try:
        if not os.fstat(descriptor).st_size:
            return {}
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
            return offered_versions(content, packages)
    finally:
        os.close(descriptor)


def _default_priority(root: Root, name: str) -> int:
    """Default priority of a list by the Release file beside it, which lowers that of backports."""
    stem = name.split("_binary-")[0]
    suite = stem.rsplit("_", 1)[0] if "_dists_" in stem else name[: -len(ENDING)]
    for ending in ("_InRelease", "_Release"):
        try:
            return release_priority(
                read_text(root, LISTS + "/" + suite + ending, 4 << 20)[:RELEASE_HEAD_BYTES]
            )
        except (OSError, ValueError):
            continue
    return 500
