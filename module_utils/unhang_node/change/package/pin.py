"""Holds and lifts what package_holds plans, on the node: state saved first, then files, then dpkg, then read back."""

from __future__ import annotations

from ...root import Root
from ...section import Unread
from ...sections.package_database import read_database
from ..files import place_of, read_state, read_text_or_none, state_path, write_state, write_text
from ..journal.saved_states import keep_files, keep_selections
from .holds import BLACKLIST_FILE, DNF4_LOCKS, DNF5_LOCKS, PIN_FILE, NotPossible, check_driver, chosen_packages, dpkg_name, plan_apt, plan_dnf
from .manager import select_packages

STATE = "package_hold"
DNF4_PLUGIN = "/etc/dnf/plugins/versionlock.conf"
DNF5 = "/usr/bin/dnf5"


def read_packages(rootfs):
    """(manager, Database). Raises NotPossible when there is none or it cannot be read."""
    unread = Unread()
    manager, database = read_database(Root([rootfs]), unread, "packages")
    if manager is None:
        raise NotPossible("expected the package database, found: {}".format(unread.rows[0]["reason"] if unread.rows else "nothing"))
    if manager == "none":
        raise NotPossible("expected dpkg or rpm, found neither; a node whose packages come with its image is held by its image")
    return manager, database


def plan_holds(rootfs, what, driver_version):
    """(manager, Database, Plan). Raises NotPossible, OSError, ValueError; changes nothing."""
    manager, database = read_packages(rootfs)
    if "driver" in what and driver_version:
        check_driver(database, driver_version)
    state = read_state(rootfs, STATE)
    if manager == "dpkg":
        texts = {path: read_text_or_none(place_of(rootfs, path)) for path in (PIN_FILE, BLACKLIST_FILE)}
        return manager, database, plan_apt(database, what, state, texts)
    path = lock_file(rootfs, bool(what or state))
    return manager, database, plan_dnf(database, what, state, path, read_text_or_none(place_of(rootfs, path)))


def lock_file(rootfs, needed):
    """Where this node's dnf keeps its version locks. Raises NotPossible where it could not read them."""
    root = Root([rootfs])
    if root.exists(DNF4_PLUGIN):
        return DNF4_LOCKS
    if root.exists(DNF5) or not needed:
        return DNF5_LOCKS
    raise NotPossible("expected dnf's versionlock, found none; install python3-dnf-plugin-versionlock")


def save_before(rootfs, state_id, plan):
    """Files and selections that a Plan changes, as they are, into a saved state."""
    keep_files(rootfs, state_id, [*plan.texts, state_path(STATE)])
    keep_selections(rootfs, state_id, {**dict.fromkeys(plan.hold, "install"), **dict.fromkeys(plan.unhold, "hold")})


def apply_plan(rootfs, plan, lock_timeout_s):
    """Everything of a Plan. What was saved names more than was done, never less, so that a run that was cut off can be lifted."""
    saved = read_state(rootfs, STATE)
    before = {key: value for key, value in saved.items() if key != "schema"}
    if plan.state != before:
        both = dict(plan.state, holds=sorted(set(plan.state.get("holds", ())) | set(before.get("holds", ()))))
        write_state(rootfs, STATE, both if "holds" in before or "holds" in plan.state else dict(before, **plan.state))
    for path, (_before, after) in sorted(plan.texts.items()):
        write_text(place_of(rootfs, path), after)
    if plan.hold or plan.unhold:
        select_packages(rootfs, plan.hold, plan.unhold, lock_timeout_s)
    if plan.state != before:
        write_state(rootfs, STATE, plan.state)


def check_held(rootfs, what):
    """Names that should be held and are not, read back from the database."""
    manager, database = read_packages(rootfs)
    return [dpkg_name(package) for package in chosen_packages(database, what) if not package.held] if manager == "dpkg" else []


def rows_of(database, what):
    """[{name, version, held}] of the groups, for an answer."""
    return [{"name": dpkg_name(package), "version": package.version, "held": package.held} for package in chosen_packages(database, what)]

