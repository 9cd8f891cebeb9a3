"""The data for a rollback of packages: packages.json and the old packages, in the folder of a saved
state."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from typing import Any, Dict, Iterable, List, Optional, Set

from ..atomic_files import STATES, place_of, read_own_json, sync, write_text
from .values import Installed, Row, Step

SCHEMA = "unhang/packages/1"
OLD, NEW = "packages/old", "packages/new"


def folder_of(state_id: str) -> str:
    """A saved state's folder on the node."""
    return f"{STATES}/{state_id}"


def read_saved(rootfs: str, folder: str) -> Optional[Dict[str, Any]]:
    """The content of packages.json, None if there is none. Raises OSError, and ValueError naming
    the file if it is broken."""
    path = folder + "/packages.json"
    saved: Optional[Dict[str, Any]] = read_own_json(rootfs, path, SCHEMA)
    if saved is not None and not isinstance(saved.get("packages"), list):
        raise ValueError(f"{path} does not hold what unhang saved there")
    return saved


def write_saved(rootfs: str, folder: str, saved: Dict[str, Any]) -> None:
    """Writes packages.json in one step. Raises OSError."""
    text = json.dumps(dict(saved, schema=SCHEMA), indent=1, sort_keys=True) + "\n"
    write_text(place_of(rootfs, folder + "/packages.json"), text, 0o600)


def rows_of(steps: Iterable[Step], installed: Installed, automatic: Set[str]) -> List[Row]:
    """Rows of packages.json for the steps: each package before and after. automatic: names of
    packages that were installed because others needed them."""
    rows = []
    for step in steps:
        if step.action == "reinstall":
            continue
        package = installed.packages.get(step.name)
        rows.append({
            "name": step.name, "architecture": package.architecture if package else "",
            "before": step.before, "after": step.after, "deb": None,
            "held": bool(package and package.held), "automatic": step.name in automatic,
            "config_files": step.name.split(":")[0] in installed.config_files,
        })  # fmt: skip
    return rows


def merge_rows(earlier: Iterable[Row], rows: Iterable[Row]) -> List[Row]:
    """Rows of packages.json merged with earlier ones: the earliest `before` of a package is the
    version to restore."""
    known = {(row["name"], row["architecture"]): row for row in earlier}
    for row in rows:
        first = known.get((row["name"], row["architecture"]))
        known[(row["name"], row["architecture"])] = (
            dict(first, after=row["after"]) if first else row
        )
    return [known[key] for key in sorted(known)]


def seal_kept(rootfs: str, folder: str, rows: Iterable[Row]) -> None:
    """Notes the SHA-256 of every kept package that has none yet, once its content is on the disk:
    after a power cut it is either complete or not listed."""
    for row in rows:
        if row["deb"] and not row.get("sha256"):
            place = place_of(rootfs, f"{folder}/{row['deb']}")
            sync(place)
            sync(os.path.dirname(place))
            row["sha256"] = sha256_of(place)


def sha256_of(place: str) -> str:
    """SHA-256 of a file. Raises OSError."""
    digest = hashlib.sha256()
    with open(place, "rb") as source:
        for piece in iter(lambda: source.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


def kept_problem(rootfs: str, folder: str, row: Row) -> str:
    """The fault of a kept package, "" if it is unchanged. A row that an older unhang wrote has no
    SHA-256; then the file only has to exist."""
    name = os.path.basename(row["deb"] or "")
    if not row["deb"]:
        return f"{row['name']} {row['before']} was not kept"
    expected = row.get("sha256")
    place = place_of(rootfs, f"{folder}/{row['deb']}")
    if not os.path.isfile(place):
        return f"{name} is missing in {folder}/{OLD}"
    if not expected or sha256_of(place) == expected:
        return ""
    size = os.path.getsize(place)
    found = f"{size} bytes with SHA-256 {sha256_of(place)[:12]}…" if size else "an empty file"
    return f"{name} is not as it was kept (SHA-256 {expected[:12]}…): it is {found}"


def forget_damaged(rootfs: str, folder: str, rows: Iterable[Row]) -> None:
    """Marks rows as not kept if their kept package has changed."""
    for row in rows:
        if row["deb"] and kept_problem(rootfs, folder, row):
            row.update(deb=None, sha256=None)


def replace_kept(rootfs: str, folder: str, row: Row, place: str) -> bool:
    """Moves a file to the place of a row's kept package. False if it is another package, which is
    not moved."""
    if not os.path.isfile(place) or sha256_of(place) != row.get("sha256"):
        return False
    kept = place_of(rootfs, f"{folder}/{row['deb']}")
    os.makedirs(os.path.dirname(kept), mode=0o700, exist_ok=True)
    shutil.copyfile(place, kept + ".new")
    sync(kept + ".new")
    os.rename(kept + ".new", kept)
    sync(os.path.dirname(kept))
    return True


def mark(rootfs: str, folder: str, status: str, message: str = "") -> None:
    """Records the status of a change: fetching, fetched, applying, done, failed, restoring,
    restored. Does nothing without a folder."""
    saved = read_saved(rootfs, folder) if folder else None
    if saved is not None:
        touched = saved.get("touched", False) or status == "applying"
        write_saved(rootfs, folder, dict(saved, status=status, message=message, touched=touched))


def forget_fetched(rootfs: str, folder: str, message: str) -> None:
    """Removes the files of a failed fetch, so that a state without changes is empty; files of an
    earlier change stay."""
    saved = read_saved(rootfs, folder) if folder else None
    if saved is not None and saved.get("touched"):
        mark(rootfs, folder, "failed", message)
    elif saved is not None:
        write_text(place_of(rootfs, folder + "/packages.json"), None)
        shutil.rmtree(place_of(rootfs, folder + "/packages"), ignore_errors=True)


def remove_new(rootfs: str, folder: str) -> None:
    """Removes the packages that were fetched to be installed: they are installed now, and the
    mirror or the node's cache has them."""
    shutil.rmtree(place_of(rootfs, f"{folder}/{NEW}"), ignore_errors=True)
