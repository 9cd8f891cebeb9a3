"""The steps that restore packages to a saved state."""

from __future__ import annotations

import fnmatch
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ..journal.as_written import Written, is_as_written, why_it_stays
from .backend import RestoreRequest
from .programs import error_lines
from .saved import kept_problem, mark
from .values import Installed, Row, Step, action_of

Refetch = Callable[[str, str, Row, bool], bool]
"""(rootfs, folder of the state, row of packages.json, check): True if a repository offers exactly
the file that was kept; unless `check`, it is then kept again."""


def plan_restore(
    saved: Dict[str, Any], installed: Installed, version_key: Callable[[str], Any]
) -> List[Step]:
    """[Step] from the installed to the saved packages. saved: content of packages.json;
    version_key: as for action_of."""
    steps = []
    for row in saved["packages"]:
        here = installed.version(row["name"])
        if here != row["before"]:
            steps.append(
                Step(
                    name=row["name"],
                    action=action_of(here, row["before"], version_key),
                    before=here,
                    after=row["before"],
                )
            )
        elif here is not None and installed.packages[row["name"]].state != "installed":
            steps.append(Step(name=row["name"], action="reinstall", before=here, after=here))
    return steps


def verify_kept(
    rootfs: str,
    folder: str,
    saved: Dict[str, Any],
    steps: Sequence[Step],
    refetch: Refetch,
    check: bool,
) -> None:
    """Before any change: checks that each package to restore has its kept file or can be fetched
    again. Raises ValueError naming those that have neither."""
    rows = {row["name"]: row for row in saved["packages"]}
    problems = []
    for step in steps:
        problem = kept_problem(rootfs, folder, rows[step.name]) if step.after else ""
        if problem and not refetch(rootfs, folder, rows[step.name], check):
            problems.append(problem)
    if problems:
        next_step = (
            "nothing was touched, and no repository offers these very files; put them back from a"
            " node or an archive that has them"
        )
        raise ValueError(f"{'; '.join(problems[:12])}; {next_step}")


def refuse_broken(broken: Sequence[str], name_of: Callable[[str], str]) -> None:
    """Raises ValueError naming packages that somebody has installed since and that need a package
    to remove: dpkg and rpm could be forced, but apt and dnf would then refuse to work. broken:
    lines that name a dependency; name_of: the package that would lack it, of a line."""
    if broken:
        names = ", ".join(dict.fromkeys(map(name_of, broken)))
        found = f"these would lack what they need: {'; '.join(broken[:12])}"
        raise ValueError(
            f"the rollback would break other packages: {found}; nothing was touched; remove {names}"
            " first, or keep the change"
        )


def known_versions(states: Iterable[Optional[Dict[str, Any]]]) -> Dict[str, Set[Optional[str]]]:
    """{package: versions that unhang found or installed}, in which None is not installed. states:
    packages.json of all states that are rolled back together. An interrupted change may have
    removed a package that it was about to replace."""
    known: Dict[str, Set[Optional[str]]] = {}
    for saved in states:
        for row in saved.get("packages", ()) if saved else ():
            versions = known.setdefault(row["name"], set())
            versions.update((row["before"], row["after"]))
            if saved and saved.get("status") != "done":
                versions.add(None)
    return known


def kept_as_is(
    saved: Dict[str, Any],
    installed: Installed,
    known: Mapping[str, Set[Optional[str]]],
    named: Sequence[str],
) -> Dict[str, str]:
    """{package: line} of packages that somebody has changed or held since unhang changed them,
    except the packages that the operator names."""
    lines = {}
    for row in saved["packages"]:
        name, here = row["name"], installed.version(row["name"])
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in named):
            continue
        package = installed.packages.get(name)
        held = bool(
            package
            and package.held
            and not row["held"]
            and name.split(":")[0] not in installed.ours
        )
        versions = sorted(known.get(name, ()), key=str)
        if is_as_written(here, [Written(row["before"], versions)]) and not held:
            continue
        found = (here or "gone") + (" on hold" if held else "")
        why = why_it_stays(row["after"] or "it gone", found)
        lines[name] = f"{name}: {why} unless the rollback names it"
    return lines


def checked_plan(
    request: RestoreRequest,
    installed: Installed,
    version_key: Callable[[str], Any],
    refetch: Refetch,
) -> Tuple[Dict[str, Any], List[Step]]:
    """(packages.json without the packages that stay as they are, the steps to it), before any
    change. Raises ValueError as verify_kept does."""
    staying = kept_as_is(request.saved, installed, request.known, request.named)
    packages = [row for row in request.saved["packages"] if row["name"] not in staying]
    saved = dict(request.saved, packages=packages)
    steps = plan_restore(saved, installed, version_key)
    verify_kept(request.rootfs, request.folder, saved, steps, refetch, request.check)
    return saved, steps


def refuse_unlike(rootfs: str, folder: str, problems: Sequence[str], by: str, log: str) -> None:
    """Marks the saved state as failed and raises ValueError if there are problems. by: the program
    that wrote the log."""
    if problems:
        message = (
            f"packages are not as they were: {'; '.join(problems[:12])}; {by}:"
            f" {' | '.join(error_lines(log))}"
        )
        mark(rootfs, folder, "failed", message)
        raise ValueError(message)


def not_restored(steps: Sequence[Step]) -> List[str]:
    """A line for each package that should have been restored and was not."""
    return [
        f"{step.name} is {step.before or 'gone'}, was {step.after or 'not there'}" for step in steps
    ]
