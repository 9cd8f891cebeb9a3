"""What it takes to bring packages back to what a saved state knows."""

from __future__ import annotations

import os

from ..files import place_of
from .apt_output import Step, action_of
from .installed import version_of


def plan_restore(saved, installed):
    """[Step] from what is installed to what was. saved: of packages.json."""
    steps = []
    for row in saved["packages"]:
        here = version_of(installed, row["name"])
        if here != row["before"]:
            steps.append(Step(row["name"], action_of(here, row["before"]), here, row["before"]))
        elif here is not None and installed.packages[row["name"]].state != "installed":
            steps.append(Step(row["name"], "reinstall", here, here))
    return steps


def check_kept(rootfs, folder, saved, steps):
    """Raises ValueError where packages that were kept are gone: before anything is touched."""
    debs = {row["name"]: row["deb"] for row in saved["packages"]}
    lost = [step.name for step in steps if step.after and not (debs[step.name] and os.path.isfile(place_of(rootfs, "{}/{}".format(folder, debs[step.name]))))]
    if lost:
        raise ValueError("expected the old packages in {}/packages, found none of: {}; they were not kept, or are gone".format(folder, ", ".join(lost)))
