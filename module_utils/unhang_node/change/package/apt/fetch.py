"""Makes a rollback possible before a change: fetches or rebuilds each package that will be removed
or replaced, into the folder of the saved state."""

from __future__ import annotations

import glob
import os
import shutil
from typing import List, NamedTuple, Sequence, Tuple

from ...atomic_files import place_of
from ...config.unit_links import keep_links
from ..programs import error_lines, private_folder, run
from ..saved import (
    NEW,
    OLD,
    forget_damaged,
    merge_rows,
    read_saved,
    replace_kept,
    rows_of,
    seal_kept,
    sha256_of,
    write_saved,
)
from ..values import Installed, Refused, Request, Row, Step, View
from .commands import ALLOW, AS_ROOT, BARE, NETWORK, make_view, offers_of
from .consistency import control_of
from .installed import read_automatic, units_of
from .output import parse_fields
from .repack import INFO, CannotRepack, repack

CACHE = "/var/cache/apt/archives"
DOWNLOAD_DEADLINE_S = 600


class Kept(NamedTuple):
    """fetched: names of files; repacked: names of packages; missing: why a package could not be
    kept, a line each."""

    fetched: List[str]
    repacked: List[str]
    missing: List[str]


def keep_old_packages(
    view: View, folder: str, steps: Sequence[Step], installed: Installed, request: Request
) -> Kept:
    """Writes packages.json and keeps the file of every package that will be removed or replaced.
    folder: of the saved state. Raises OSError, ValueError."""
    rootfs = view.rootfs
    earlier = read_saved(rootfs, folder) or {}
    rows = merge_rows(
        earlier.get("packages", []),
        rows_of(steps, installed, read_automatic(rootfs, installed.architecture)),
    )
    keep_links(rootfs, rows, lambda row: units_of(rootfs, row))
    asked = {"install": request.install, "remove": request.remove}
    saved = dict(
        earlier, status="fetching", message="", manager="dpkg", packages=rows, request=asked
    )
    os.makedirs(place_of(rootfs, f"{folder}/{OLD}"), mode=0o700, exist_ok=True)
    write_saved(rootfs, folder, saved)
    forget_damaged(rootfs, folder, rows)
    wanted = [row for row in rows if row["before"] is not None and row["deb"] is None]
    fetched = _fetch_old(view, folder, wanted, request.fetch_timeout_s)
    repacked, missing = _repack(rootfs, folder, [row for row in wanted if row["deb"] is None])
    seal_kept(rootfs, folder, rows)
    for row in rows:
        if row["deb"] and not row.get("control"):
            row["control"] = control_of(rootfs, f"{folder}/{row['deb']}")
    write_saved(rootfs, folder, dict(saved, status="fetched"))
    return Kept(fetched=fetched, repacked=repacked, missing=missing)


def _fetch_old(view: View, folder: str, rows: Sequence[Row], timeout_s: float) -> List[str]:
    """Fetches old packages and sets `deb` of every row whose package a repository, or the node's
    cache, still has."""
    old = f"{folder}/{OLD}"
    offers = offers_of(view, {row["name"] for row in rows})
    arguments = []
    for row in rows:
        name = row["name"].split(":")[0]
        if any(offer["version"] == row["before"] for offer in offers.get(name, ())):
            arguments.append(f"{row['name']}={row['before']}")
        for known in glob.glob(f"{place_of(view.rootfs, CACHE)}/{name}_*.deb"):
            if file_of(row) == os.path.basename(known):
                shutil.copy2(known, place_of(view.rootfs, old))
    if arguments:
        argv = ["apt-get", "-q", *view.options, *NETWORK, *AS_ROOT, "download", *arguments]
        # Its exit code does not matter: the fetched files are checked, and a package without one is
        # rebuilt.
        run(view.rootfs, _in_folder(old, argv), timeout_s)
    fetched = []
    for row in rows:
        if is_package_of(view.rootfs, f"{old}/{file_of(row)}", row):
            row["deb"] = f"{OLD}/{file_of(row)}"
            fetched.append(file_of(row))
    return fetched


def _in_folder(folder: str, argv: Sequence[str]) -> List[str]:
    """argv that runs `argv` in a folder of the node: apt-get download writes into the working
    directory."""
    return ["/bin/sh", "-c", 'cd "$0" && exec "$@"', folder, *argv]


def file_of(row: Row) -> str:
    """A package's file name in apt's notation."""
    return (
        f"{row['name'].split(':')[0]}_{row['before'].replace(':', '%3a')}_{row['architecture']}.deb"
    )


def is_package_of(rootfs: str, path: str, row: Row) -> bool:
    """True if the file is a readable package, the one of the row, and no other build of the same
    version."""
    if not os.path.isfile(place_of(rootfs, path)):
        return False
    if run(rootfs, ["dpkg-deb", "--contents", path])[0]:
        return False  # in a truncated file of the node's cache the first part is still readable
    code, output = run(rootfs, ["dpkg-deb", "--field", path, "Package", "Version", "Architecture"])
    found = parse_fields(output, ("Package", "Version", "Architecture"))
    named = [
        {
            "Package": row["name"].split(":")[0],
            "Version": row["before"],
            "Architecture": row["architecture"],
        }
    ]
    return code == 0 and found == named and not is_another_build(rootfs, path, row)


def is_another_build(rootfs: str, path: str, row: Row) -> bool:
    """True when the package at a path of the node lists other files than the installed one: a
    mirror may have rebuilt a version. False if one of the two has no list of checksums."""
    name = row["name"].split(":")[0]
    listed = (
        place_of(rootfs, f"{INFO}/{stem}.md5sums")
        for stem in (name, f"{name}:{row['architecture']}")
    )
    installed = next((place for place in listed if os.path.isfile(place)), None)
    private = private_folder(rootfs)
    try:
        code, _output = run(rootfs, ["dpkg-deb", "--control", path, private + "/control"])
        offered = place_of(rootfs, private + "/control/md5sums")
        return (
            installed is not None
            and code == 0
            and os.path.isfile(offered)
            and sha256_of(installed) != sha256_of(offered)
        )
    finally:
        shutil.rmtree(place_of(rootfs, private), ignore_errors=True)


def refetch(rootfs: str, folder: str, row: Row, check: bool) -> bool:
    """restore_plan.Refetch: apt's lists name the SHA-256 of each package that they offer."""
    if not row.get("sha256"):
        return False
    private = private_folder(rootfs)
    try:
        view = make_view(rootfs, private, private=True)
        argument = f"{row['name']}={row['before']}"
        listed = parse_fields(
            run(rootfs, ["apt-cache", *view.options, "show", argument])[1], ("SHA256",)
        )
        if row["sha256"] not in [fields["SHA256"] for fields in listed]:
            return False
        if check:
            return True
        run(
            rootfs,
            _in_folder(
                private, ["apt-get", "-q", *view.options, *NETWORK, *AS_ROOT, "download", argument]
            ),
            DOWNLOAD_DEADLINE_S,
        )
        return replace_kept(rootfs, folder, row, place_of(rootfs, f"{private}/{file_of(row)}"))
    except FileNotFoundError:
        return False  # an image without apt has no repository
    finally:
        shutil.rmtree(place_of(rootfs, private), ignore_errors=True)


def _repack(rootfs: str, folder: str, rows: Sequence[Row]) -> Tuple[List[str], List[str]]:
    repacked, missing = [], []
    for row in rows:
        name = row["name"].split(":")[0]
        try:
            file_name = repack(
                rootfs,
                name,
                row["architecture"],
                row["before"],
                place_of(rootfs, f"{folder}/{OLD}"),
            )
        except CannotRepack as problem:
            missing.append(
                f"{row['name']} {row['before']}: no repository has it any more, and it cannot be"
                f" built again: {problem}"
            )
            continue
        row["deb"] = f"{OLD}/{file_name}"
        repacked.append(row["name"])
    return repacked, missing


def fetch_new(
    view: View, folder: str, arguments: Sequence[str], timeout_s: float, lock_timeout_s: float
) -> List[str]:
    """Fetches the packages to install into the folder and returns their file names. Raises Refused
    with the mirror's answer."""
    path = f"{folder}/{NEW}"
    os.makedirs(place_of(view.rootfs, path + "/partial"), mode=0o700, exist_ok=True)
    argv = [
        "apt-get",
        "-q",
        "-y",
        "--download-only",
        *view.options,
        *NETWORK,
        *AS_ROOT,
        *BARE,
        *ALLOW,
    ]
    # apt locks dpkg for a download too, and another process may have taken the lock since this
    # change waited for it. timeout_s limits the fetch in any case.
    argv += [
        "-o",
        f"DPkg::Lock::Timeout={int(lock_timeout_s)}",
        "-o",
        "Dir::Cache::Archives=" + path,
    ]
    code, output = run(view.rootfs, [*argv, "install", *arguments], timeout_s)
    if code:
        raise Refused(f"a package could not be fetched: {' | '.join(error_lines(output))}")
    return sorted(name for name in os.listdir(place_of(view.rootfs, path)) if name.endswith(".deb"))
