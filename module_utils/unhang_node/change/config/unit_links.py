"""Which units of packages start at boot: saved before packages change, and restored behind them,
for packages' own scripts change it.

A package that is purged takes the links of its units with it (purge of deb-systemd-helper(1p)),
also where another branch's package ships the same unit: nvidia-fabricmanager-550 and -535 both have
nvidia-fabricmanager.service. rpm's scripts disable the units of a package that goes, and ask the
presets for those of one that comes (systemd.preset(5)).
"""

from __future__ import annotations

import os
from typing import Any, Callable, Collection, Dict, Iterable, List, Mapping, Optional, Set

from ..atomic_files import place_of, sync
from ..journal.as_written import Written, is_as_written, why_it_stays

FOLDER = "/etc/systemd/system"
UNIT_FOLDERS = ("/usr/lib/systemd/system", "/lib/systemd/system", "/usr/local/lib/systemd/system")
BY_TARGET = (".wants", ".requires", ".upholds")
MASK = "/dev/null"
Row = Dict[str, Any]
"""A row of packages.json (package/saved.py)."""
Links = Mapping[str, str]
"""{path: target}."""
UnitsOf = Callable[[Row], Set[str]]
"""Names of the units that the installed package of a row ships."""


def units_in(paths: Iterable[str]) -> Set[str]:
    """Names of unit files among the paths of a package."""
    return {
        os.path.basename(path)
        for path in paths
        if os.path.dirname(path) in UNIT_FOLDERS and "." in os.path.basename(path)
    }


def read_links(rootfs: str, units: Collection[str]) -> Dict[str, str]:
    """{path: target} of the links about these units: what starts them at boot, aliases, masks.
    Raises OSError."""
    top = place_of(rootfs, FOLDER)
    if not units or not os.path.isdir(top):
        return {}
    folders = [
        FOLDER,
        *(f"{FOLDER}/{name}" for name in sorted(os.listdir(top)) if name.endswith(BY_TARGET)),
    ]
    found = {}
    for folder in folders:
        here = place_of(rootfs, folder)
        for name in sorted(os.listdir(here)) if os.path.isdir(here) else []:
            target = os.readlink(f"{here}/{name}") if os.path.islink(f"{here}/{name}") else None
            if target is not None and (name in units or os.path.basename(target) in units):
                found[f"{folder}/{name}"] = target
    return found


def keep_links(rootfs: str, rows: Iterable[Row], units_of: UnitsOf) -> None:
    """Notes in each row of packages.json the units of the package that is there, and their links;
    what was noted first stays."""
    for row in rows:
        if row["before"] is not None and "units" not in row:
            row["units"] = sorted(units_of(row))
            row["links"] = read_links(rootfs, row["units"])


def units_to_go(saved: Dict[str, Any], installed: Collection[str], units_of: UnitsOf) -> Set[str]:
    """Names of units of the packages that came with the change and are still there: asked before
    they go."""
    return {
        unit
        for row in saved["packages"]
        if row["before"] is None and row["name"] in installed
        for unit in units_of(row)
    }


def restore_links(rootfs: str, saved: Dict[str, Any], gone: Collection[str]) -> List[str]:
    """Paths of links that were made or removed. saved: of packages.json; gone: of units_to_go. Each
    step compares, so that it can be done again."""
    # an older unhang noted none
    rows = [row for row in saved["packages"] if row.get("units") is not None]
    wanted = {path: target for row in rows for path, target in row["links"].items()}
    known = {unit for row in rows for unit in row["units"]}
    now = read_links(rootfs, known | set(gone))
    leaving = [
        path
        for path, target in now.items()
        if path not in wanted and (_is_of(path, target, known) or not _leads(rootfs, target))
    ]
    coming = [
        path
        for path, target in wanted.items()
        if now.get(path) != target and (target == MASK or _leads(rootfs, target))
    ]
    for path in sorted(leaving):
        os.unlink(_at(rootfs, path))
    for path in sorted(coming):
        _make(_at(rootfs, path), wanted[path])
    _sync_folders(rootfs, [*leaving, *coming])
    return sorted([*leaving, *coming])


def keep_links_of_others(rootfs: str, saved: Dict[str, Any], left: Optional[Links]) -> List[str]:
    """Has a rollback keep the links that somebody has changed since; returns a line for each.
    saved: of packages.json, whose rows it changes; left: the links that unhang has left, None if it
    was killed before it recorded them, or if the rollback has begun. Raises OSError."""
    lines: List[str] = []
    if left is None:
        return lines
    for row in saved.get("packages", ()):
        units = row.get("units") or ()
        now = read_links(rootfs, units)
        for path in sorted({*row.get("links", ()), *now, *left}):
            before, after, here = row["links"].get(path), left.get(path), now.get(path)
            if not _is_of(path, here or after or before or "", units) or is_as_written(
                here, [Written(before, [after])]
            ):
                continue
            row["links"] = {**row["links"], path: here}
            lines.append(f"{path}: {why_it_stays(after or 'no link', here or 'gone')}")
        row["links"] = {path: target for path, target in (row.get("links") or {}).items() if target}
    return lines


def _is_of(path: str, target: str, units: Collection[str]) -> bool:
    return os.path.basename(path) in units or os.path.basename(target) in units


def _leads(rootfs: str, target: str) -> bool:
    """True where the unit that a link means is on the node; a relative link means it by its name
    too."""
    name = os.path.basename(target)
    return any(
        os.path.lexists(place_of(rootfs, folder) + "/" + name) for folder in UNIT_FOLDERS
    ) or os.path.isfile(_at(rootfs, f"{FOLDER}/{name}"))


def _at(rootfs: str, path: str) -> str:
    """This machine's path of the link itself."""
    return place_of(rootfs, os.path.dirname(path)) + "/" + os.path.basename(path)


def _make(place: str, target: str) -> None:
    os.makedirs(os.path.dirname(place), mode=0o755, exist_ok=True)
    beside = os.path.dirname(place) + "/.unhang-" + os.path.basename(place)
    if os.path.lexists(beside):  # of a rollback that was killed here
        os.unlink(beside)
    os.symlink(target, beside)
    os.rename(beside, place)


def _sync_folders(rootfs: str, paths: Iterable[str]) -> None:
    """Waits until the links are on the disk."""
    for folder in sorted({os.path.dirname(path) for path in paths}):
        sync(place_of(rootfs, folder))


def read_starters(rootfs: str, unit: str) -> List[str]:
    """Names of the targets that start a unit at boot by a link below /etc: multi-user.target.
    Raises OSError."""
    folders = (
        os.path.basename(os.path.dirname(path))
        for path in read_links(rootfs, [unit])
        if path.endswith("/" + unit)
    )
    return sorted(name[: -len(".wants")] for name in folders if name.endswith(".wants"))


def write_starters(rootfs: str, unit: str, targets: Collection[str], file: str) -> None:
    """Has exactly these targets start the unit at boot, without a reload of systemd. file: path of
    the unit. Raises OSError."""
    links = {f"{FOLDER}/{target}.wants/{unit}" for target in targets}
    now = {path for path in read_links(rootfs, [unit]) if path.endswith(f".wants/{unit}")}
    for path in sorted(now - links):
        os.unlink(_at(rootfs, path))
    for path in sorted(links - now):
        _make(_at(rootfs, path), file)
    _sync_folders(rootfs, now ^ links)
