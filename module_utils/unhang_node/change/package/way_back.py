"""Proves the way back before anything is touched: every package that will go is fetched, or built again, into the folder of the saved state."""

from __future__ import annotations

import glob
import os
import shutil

from ..files import place_of
from .apt import ALLOW, AS_ROOT, BARE, NETWORK, Refused, offers_of, run
from .apt_output import parse_fields, said_lines
from .installed import read_automatic
from .repack import CannotRepack, repack
from .saved import NEW, OLD, merge_rows, read_saved, write_saved

CACHE = "/var/cache/apt/archives"


def rows_of(steps, installed, automatic):
    """Rows of packages.json for the steps: what each package was, and what it is to become."""
    rows = []
    for step in steps:
        if step.action == "reinstall":
            continue
        package = installed.packages.get(step.name)
        rows.append({
            "name": step.name, "architecture": package.architecture if package else "", "before": step.before, "after": step.after, "deb": None,
            "held": bool(package and package.held), "automatic": step.name in automatic, "config_files": step.name.split(":")[0] in installed.config_files,
        })  # fmt: skip
    return rows


def save_way_back(view, folder, steps, installed, request, timeout_s):
    """(files fetched, names built again, what is missing as lines). folder: of the saved state. Raises OSError, ValueError."""
    rootfs = view.rootfs
    earlier = read_saved(rootfs, folder) or {}
    rows = merge_rows(earlier.get("packages", []), rows_of(steps, installed, read_automatic(rootfs, installed.architecture)))
    saved = dict(earlier, status="fetching", message="", manager="dpkg", packages=rows, request={key: request[key] for key in ("install", "remove")})
    os.makedirs(place_of(rootfs, "{}/{}".format(folder, OLD)), mode=0o700, exist_ok=True)
    write_saved(rootfs, folder, saved)
    wanted = [row for row in rows if row["before"] is not None and row["deb"] is None]
    fetched = _fetch_old(view, folder, wanted, timeout_s)
    rebuilt, missing = _rebuild(rootfs, folder, [row for row in wanted if row["deb"] is None])
    write_saved(rootfs, folder, dict(saved, status="fetched"))
    return fetched, rebuilt, missing


def _fetch_old(view, folder, rows, timeout_s):
    """Sets `deb` of every row whose package a repository, or the node's own cache, still has."""
    place = place_of(view.rootfs, "{}/{}".format(folder, OLD))
    offers = offers_of(view, {row["name"] for row in rows})
    words = []
    for row in rows:
        if any(offer["version"] == row["before"] for offer in offers.get(row["name"].split(":")[0], ())):
            words.append("{}={}".format(row["name"], row["before"]))
        for known in glob.glob("{}/{}_*.deb".format(place_of(view.rootfs, CACHE), row["name"].split(":")[0])):
            if file_of(row) == os.path.basename(known):
                shutil.copy2(known, place)
    if words:
        argv = ["apt-get", "-q"] + view.options + NETWORK + AS_ROOT + ["download"] + words
        # What could not be had is built again; whether it could be had is seen by looking.
        run(view.rootfs, _in_folder(view.rootfs, "{}/{}".format(folder, OLD), argv), timeout_s)
    fetched = []
    for row in rows:
        if is_that(view.rootfs, "{}/{}/{}".format(folder, OLD, file_of(row)), row):
            row["deb"] = "{}/{}".format(OLD, file_of(row))
            fetched.append(file_of(row))
    return fetched


def _in_folder(_rootfs, folder, argv):
    """argv run in a folder of the node: apt-get download writes where it stands."""
    return ["/bin/sh", "-c", 'cd "$0" && exec "$@"', folder] + argv


def file_of(row):
    """A package's file name as apt gives it."""
    return "{}_{}_{}.deb".format(row["name"].split(":")[0], row["before"].replace(":", "%3a"), row["architecture"])


def is_that(rootfs, path, row):
    """True when the file is a package that can be read and is the one that the row means."""
    if not os.path.isfile(place_of(rootfs, path)):
        return False
    code, said = run(rootfs, ["dpkg-deb", "--field", path, "Package", "Version", "Architecture"])
    found = parse_fields(said, ("Package", "Version", "Architecture"))
    return code == 0 and found == [{"Package": row["name"].split(":")[0], "Version": row["before"], "Architecture": row["architecture"]}]


def _rebuild(rootfs, folder, rows):
    rebuilt, missing = [], []
    for row in rows:
        name = row["name"].split(":")[0]
        try:
            file_name = repack(rootfs, name, row["architecture"], row["before"], place_of(rootfs, "{}/{}".format(folder, OLD)))
        except CannotRepack as problem:
            missing.append("{} {}: no repository has it any more, and it cannot be built again: {}".format(row["name"], row["before"], problem))
            continue
        row["deb"] = "{}/{}".format(OLD, file_name)
        rebuilt.append(row["name"])
    return rebuilt, missing


def fetch_new(view, folder, words, recommends, timeout_s):
    """File names of the packages that will be installed, in the folder now. Raises Refused with what the mirror said."""
    path = "{}/{}".format(folder, NEW)
    os.makedirs(place_of(view.rootfs, path + "/partial"), mode=0o700, exist_ok=True)
    argv = ["apt-get", "-q", "-y", "--download-only"] + view.options + NETWORK + AS_ROOT + ([] if recommends else BARE) + ALLOW
    code, said = run(view.rootfs, argv + ["-o", "Dir::Cache::Archives=" + path, "install"] + words, timeout_s)
    if code:
        raise Refused("expected to fetch every package, found: {}".format(" | ".join(said_lines(said))))
    return sorted(name for name in os.listdir(place_of(view.rootfs, path)) if name.endswith(".deb"))
