"""Holds packages on the node, and unholds them: saves the state, writes files, sets the package
manager's selections, reads back."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ...base.parse.dpkg import Database, Package
from ...base.root import Root
from ...base.section import Unread
from ...facts.sections.package_database import read_database
from ..atomic_files import place_of, read_state, state_path, write_state, write_text
from ..journal.saved_states import keep_files, keep_selections
from .held_groups import NotPossible, check_driver, chosen_packages, dpkg_name
from .managers import backend_named, backend_of
from .values import HoldPlan, Row

STATE = "package_hold"


class Holds(NamedTuple):
    """The present and the wanted holds of a node. manager: dpkg or rpm."""

    manager: str
    database: Database
    plan: HoldPlan


def read_packages(rootfs: str) -> Tuple[str, Database]:
    """(manager, packages). Raises NotPossible if there is no package database, or it cannot be
    read."""
    unread = Unread()
    manager, database = read_database(Root([rootfs]), unread, "packages")
    if manager is None or database is None:
        raise NotPossible(
            "the package database cannot be read:"
            f" {unread.rows[0]['reason'] if unread.rows else 'nothing'}"
        )
    if manager == "none":
        raise NotPossible(
            "the node has neither dpkg nor rpm; a node whose packages come with its image is held"
            " by its image"
        )
    return manager, database


def plan_holds(
    rootfs: str, groups: Sequence[str], driver_version: Optional[str], changes: Sequence[Row] = ()
) -> Holds:
    """Raises NotPossible, OSError, ValueError; changes nothing. changes: those of a simulated
    package_change, which are treated as made."""
    manager, database = read_packages(rootfs)
    database = after_changes(database, changes)
    if "driver" in groups and driver_version:
        check_driver(database, driver_version)
    plan = backend_named(manager).plan_holds(rootfs, database, groups, read_state(rootfs, STATE))
    return Holds(manager=manager, database=database, plan=plan)


def after_changes(database: Database, changes: Sequence[Row]) -> Database:
    """The packages after changes, [{name, before, after}]. A new package has no architecture,
    because a simulation does not print it."""
    after = {row["name"]: row["after"] for row in changes}
    kept = [package for package in database.packages if package.name not in after]
    moved = [
        package._replace(version=after[package.name])
        for package in database.packages
        if after.get(package.name)
    ]
    coming = {
        name: version
        for name, version in after.items()
        if version and name not in {package.name for package in database.packages}
    }
    new = [
        Package(name=name, version=version, architecture="", held=False, state="installed")
        for name, version in coming.items()
    ]
    packages = sorted(
        [*kept, *moved, *new], key=lambda package: (package.name, package.architecture)
    )
    return database._replace(packages=tuple(packages))


def save_before(rootfs: str, state_id: str, plan: HoldPlan) -> None:
    """Saves the files and selections that a plan changes into a saved state."""
    keep_files(rootfs, state_id, [*plan.texts, state_path(STATE)])
    keep_selections(
        rootfs,
        state_id,
        {**dict.fromkeys(plan.hold, "install"), **dict.fromkeys(plan.unhold, "hold")},
    )


def apply_plan(rootfs: str, plan: HoldPlan, lock_timeout_s: float) -> None:
    """Carries out a plan. Every change is saved before it is made, so that an interrupted run can
    be undone."""
    saved = read_state(rootfs, STATE)
    before = {key: value for key, value in saved.items() if key != "schema"}
    if plan.state != before:
        write_state(rootfs, STATE, _before_and_after(before, plan.state))
    for path, (_before, after) in sorted(plan.texts.items()):
        write_text(place_of(rootfs, path), after)
    if plan.hold or plan.unhold:
        backend_of(rootfs).set_holds(rootfs, plan.hold, plan.unhold, lock_timeout_s)
    if plan.state != before:
        write_state(rootfs, STATE, plan.state)


def _before_and_after(before: Dict[str, Any], after: Dict[str, Any]) -> Dict[str, Any]:
    if "holds" in before or "holds" in after:
        return dict(after, holds=sorted(set(after.get("holds", ())) | set(before.get("holds", ()))))
    return dict(before, **after)


def check_held(rootfs: str, groups: Sequence[str]) -> List[str]:
    """Names of packages that should be held and are not, read back from the database."""
    manager, database = read_packages(rootfs)
    return (
        [dpkg_name(package) for package in chosen_packages(database, groups) if not package.held]
        if manager == "dpkg"
        else []
    )


def rows_of(database: Database, groups: Sequence[str]) -> List[Row]:
    """[{name, version, held}] of the groups' packages, for a module's result."""
    return [
        {"name": dpkg_name(package), "version": package.version, "held": package.held}
        for package in chosen_packages(database, groups)
    ]
