"""What is kept to bring packages back: packages.json and the old packages themselves, in the folder of a saved state."""

from __future__ import annotations

import json
import shutil

from ..files import place_of, read_own_json, write_text

SCHEMA = "unhang/packages/1"
STATES = "/var/lib/unhang/states"
OLD, NEW = "packages/old", "packages/new"


def folder_of(state_id):
    """A saved state's folder on the node."""
    return "{}/{}".format(STATES, state_id)


def read_saved(rootfs, folder):
    """What packages.json holds, None where there is none. Raises ValueError naming it when it is broken, OSError."""
    path = folder + "/packages.json"
    saved = read_own_json(rootfs, path, SCHEMA)
    if saved is not None and not isinstance(saved.get("packages"), list):
        raise ValueError("{}: expected what unhang saved there, found something else".format(path))
    return saved


def write_saved(rootfs, folder, saved):
    """Writes packages.json whole. Raises OSError."""
    text = json.dumps(dict(saved, schema=SCHEMA), indent=1, sort_keys=True) + "\n"
    write_text(place_of(rootfs, folder + "/packages.json"), text, 0o600)


def merge_rows(earlier, rows):
    """Rows of packages.json with what is known from before: a package's first `before` is what the state goes back to."""
    known = {(row["name"], row["architecture"]): row for row in earlier}
    for row in rows:
        first = known.get((row["name"], row["architecture"]))
        known[(row["name"], row["architecture"])] = dict(first, after=row["after"]) if first else row
    return [known[key] for key in sorted(known)]


def mark(rootfs, folder, status, message=""):
    """Notes how far a change has come: fetching, fetched, applying, done, failed, restoring, restored."""
    saved = read_saved(rootfs, folder)
    if saved is not None:
        touched = saved.get("touched", False) or status == "applying"
        write_saved(rootfs, folder, dict(saved, status=status, message=message, touched=touched))


def forget_fetched(rootfs, folder, message):
    """After a fetch that failed: what was begun with it goes, so that a state without a change has nothing in it; what an earlier change saved stays."""
    saved = read_saved(rootfs, folder)
    if saved is None or saved.get("touched"):
        return mark(rootfs, folder, "failed", message)
    write_text(place_of(rootfs, folder + "/packages.json"), None)
    shutil.rmtree(place_of(rootfs, folder + "/packages"), ignore_errors=True)
    return None


def remove_new(rootfs, folder):
    """Takes the packages away that were fetched to be installed: they are on the node now, and the mirror or the node's cache has them."""
    shutil.rmtree(place_of(rootfs, "{}/{}".format(folder, NEW)), ignore_errors=True)
