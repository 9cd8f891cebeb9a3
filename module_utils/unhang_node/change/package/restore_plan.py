"""What it takes to bring packages back to what a saved state knows."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence

from .saved import kept_problem
from .values import Installed, Row, Step

ActionOf = Callable[[Optional[str], Optional[str]], str]
"""(version before, version after; None is not installed) -> Step.action, in the order of the package manager's versions."""
FetchAgain = Callable[[str, str, Row, bool], bool]
"""(rootfs, folder of the state, row of packages.json, check): True when a repository has the very file that was kept, and unless `check` it is kept again."""


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


def verify_kept(rootfs: str, folder: str, saved: Dict[str, Any], steps: Sequence[Step], fetch_again: FetchAgain, check: bool) -> None:
    """Before anything is touched: every package that comes back is the file that was kept, or is fetched again. Raises ValueError naming those that are not."""
    rows = {row["name"]: row for row in saved["packages"]}
    problems = []
    for step in steps:
        problem = kept_problem(rootfs, folder, rows[step.name]) if step.after else ""
        if problem and not fetch_again(rootfs, folder, rows[step.name], check):
            problems.append(problem)
    if problems:
        next_step = "nothing was touched, and no repository offers these very files; put them back from a node or an archive that has them"
        raise ValueError(f"{'; '.join(problems[:12])}; {next_step}")


def not_restored(steps: Sequence[Step]) -> List[str]:
    """A line for each package that a restore should have brought back and did not."""
    return [f"{step.name} is {step.before or 'gone'}, was {step.after or 'not there'}" for step in steps]
