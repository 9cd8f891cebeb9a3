"""Saves the boot loader's configuration with a role's state, and restores it."""

from __future__ import annotations

import json
import os
from typing import Any

from ..boot import kernels
from ..boot import loader as loaders
from ..boot.steps import no_guard_steps
from ..boot.trial import back_steps, before_of, read_record, read_standing
from ..files import place_of, read_own_json, write_text

NAME = "boot.json"
SCHEMA = "unhang/boot/1"


def save_boot(rootfs: str, folder: str) -> None:
    """Writes boot.json into a saved state's folder, once: what was saved first was there before. Nothing without a folder. Raises OSError, ValueError."""
    place = place_of(rootfs, folder + "/" + NAME) if folder else None
    if place is None or os.path.exists(place):
        return
    # A trial that was prepared in an earlier run knows what was there before it.
    known = read_record(rootfs).get("before") if read_standing(rootfs) in ("prepared", "armed", "on_trial", "fell_back") else None
    saved = dict(known or before_of(rootfs, loaders.read_loader(rootfs)), schema=SCHEMA)
    write_text(place, json.dumps(saved, indent=1, sort_keys=True) + "\n", 0o600)


def restore_boot(rootfs: str, folder: str, check: bool) -> list[dict[str, Any]]:
    """[{what, before, after}] of what was (with check: would be) brought back; [] for a state without boot.json.

    The kernel that ran when the state was saved becomes the default. While newer kernels are on the disk it is so by name; once they are gone, the loader is
    told to the letter what it was told then: call it again after packages were removed. Which kernel runs does not change before a reboot: see reboot_needed.
    Raises OSError, ValueError.
    """
    saved = _read(rootfs, folder)
    if saved is None:
        return []
    if saved["release"] not in kernels.installed_releases(rootfs):
        raise ValueError("expected kernel {} on the disk to go back to, found {}".format(saved["release"], ", ".join(kernels.installed_releases(rootfs))))
    steps = back_steps(rootfs, saved["release"], saved)
    if read_standing(rootfs) != "on_trial":
        steps += no_guard_steps(rootfs)
    for step in [] if check else steps:
        step.act()
    return [{"what": step.what, "before": step.before, "after": step.after} for step in steps]


def reboot_needed(rootfs: str, folder: str) -> str | None:
    """The release that the node has to be rebooted into before packages of the one that runs can go, None when it runs already or nothing was saved."""
    saved = _read(rootfs, folder)
    return saved["release"] if saved and saved["release"] != kernels.running_release(rootfs) else None


def _read(rootfs: str, folder: str) -> dict[str, Any] | None:
    return read_own_json(rootfs, folder + "/" + NAME, SCHEMA)
