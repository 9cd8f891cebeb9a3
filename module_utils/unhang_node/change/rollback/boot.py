"""Saves the boot loader's configuration with a role's state, and restores it."""

from __future__ import annotations

import json
import os
from typing import Any

from ..atomic_files import place_of, read_own_json, write_text
from ..boot import kernels
from ..boot import loader as loaders
from ..boot.steps import no_guard_steps
from ..boot.trial import back_steps, before_of, read_record, read_standing

NAME = "boot.json"
SCHEMA = "unhang/boot/1"


def save_boot(rootfs: str, folder: str) -> None:
    """Writes boot.json into a saved state's folder, unless it exists: the first one is the
    original. Does nothing without a folder. Raises OSError, ValueError."""
    place = place_of(rootfs, folder + "/" + NAME) if folder else None
    if place is None or os.path.exists(place):
        return
    # If an earlier run prepared a trial, the trial's record has the original configuration.
    known = (
        read_record(rootfs).get("before")
        if read_standing(rootfs) in ("prepared", "armed", "on_trial", "fell_back")
        else None
    )
    saved = dict(known or before_of(rootfs, loaders.read_loader(rootfs)), schema=SCHEMA)
    write_text(place, json.dumps(saved, indent=1, sort_keys=True) + "\n", 0o600)


def restore_boot(rootfs: str, folder: str, check: bool) -> list[dict[str, Any]]:
    """[{what, before, after}] of the settings that were restored (with check: would be); [] for a
    state without boot.json.

    The kernel that ran when the state was saved becomes the default. While newer kernels are
    installed, it is set by name; once they are removed, the loader's saved configuration is
    restored exactly: call this again after packages were removed. The running kernel changes only
    by a reboot (see reboot_needed). Raises OSError, ValueError.
    """
    saved = _read(rootfs, folder)
    if saved is None:
        return []
    if saved["release"] not in kernels.installed_releases(rootfs):
        raise ValueError(
            f"kernel {saved['release']} is not on the disk, so the node cannot go back to it; there"
            f" are {', '.join(kernels.installed_releases(rootfs))}"
        )
    steps = back_steps(rootfs, saved["release"], saved)
    if read_standing(rootfs) != "on_trial":
        steps += no_guard_steps(rootfs)
    for step in [] if check else steps:
        step.act()
    return [{"what": step.what, "before": step.before, "after": step.after} for step in steps]


def reboot_needed(rootfs: str, folder: str) -> str | None:
    """The kernel release that must be booted before the packages of the running kernel can be
    removed; None if it already runs or no release was saved."""
    saved = _read(rootfs, folder)
    return (
        saved["release"] if saved and saved["release"] != kernels.running_release(rootfs) else None
    )


def _read(rootfs: str, folder: str) -> dict[str, Any] | None:
    return read_own_json(rootfs, folder + "/" + NAME, SCHEMA)
