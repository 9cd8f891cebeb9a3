"""What it takes to bring packages back to what a saved state knows."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional, Sequence

from ..files import place_of
from .values import Installed, Step

ActionOf = Callable[[Optional[str], Optional[str]], str]
"""(version before, version after; None is not installed) -> Step.action, in the order of the package manager's versions."""


def plan_restore(saved: Dict[str, Any], installed: Installed, action_of: ActionOf) -> List[Step]:
    """[Step] from what is installed to what was. saved: of packages.json."""
    steps = []
    for row in saved["packages"]:
        here = installed.version(row["name"])
        if here != row["before"]:
            steps.append(Step(name=row["name"], action=action_of(here, row["before"]), before=here, after=row["before"]))
        elif here is not None and installed.packages[row["name"]].state != "installed":
            steps.append(Step(name=row["name"], action="reinstall", before=here, after=here))
    return steps


def check_kept(rootfs: str, folder: str, saved: Dict[str, Any], steps: Sequence[Step]) -> None:
    """Raises ValueError where packages that were kept are gone: before anything is touched."""
    files = {row["name"]: row["deb"] for row in saved["packages"]}
    lost = [step.name for step in steps if step.after and not (files[step.name] and os.path.isfile(place_of(rootfs, f"{folder}/{files[step.name]}")))]
    if lost:
        raise ValueError(f"expected the old packages in {folder}/packages, found none of: {', '.join(lost)}; they were not kept, or are gone")


def not_restored(steps: Sequence[Step]) -> List[str]:
    """A line for each package that a restore should have brought back and did not."""
    return [f"{step.name} is {step.before or 'gone'}, was {step.after or 'not there'}" for step in steps]
