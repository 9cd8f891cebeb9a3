"""Restores dpkg's packages from those in a saved state, without a repository; with apt, or with
dpkg if apt cannot."""

from __future__ import annotations

import os
import shutil
from typing import Any, Dict, List, Sequence

from ....base.versions.packages import deb_version_key
from ...atomic_files import place_of
from ...config.unit_links import restore_links, units_to_go
from ..backend import RestoreRequest
from ..judging import not_configured
from ..lock_files import APT_LOCKS, wait_for_locks
from ..programs import inside, run
from ..restore_plan import checked_plan, not_restored, plan_restore, refuse_broken, refuse_unlike
from ..saved import mark
from ..unit import WORK, run_apart, wait_for_earlier
from ..values import Installed, Refused, Row, Step
from .commands import ALLOW, BARE, DPKG, make_view, simulate
from .consistency import broken_by, unmet_dependencies
from .fetch import refetch
from .installed import read_automatic, read_installed, units_of
from .selections import merge_journal, select_packages

DEADLINE_S = 3600


def wait_until_free(rootfs: str, timeout_s: float) -> None:
    """Waits for an earlier change of unhang's, then for the holder of a lock of apt or dpkg. Raises
    Locked, OSError."""
    wait_for_earlier(timeout_s)
    wait_for_locks(rootfs, APT_LOCKS, timeout_s)


def restore(request: RestoreRequest) -> List[Row]:
    """[{name, action, before, after}] of packages that were restored, or would be. Raises
    ValueError, OSError."""
    rootfs, folder, check = request.rootfs, request.folder, request.check
    if not check:
        wait_until_free(rootfs, request.lock_timeout_s)
    installed = read_installed(rootfs)
    saved, steps = checked_plan(request, installed, deb_version_key, refetch)
    refuse_broken(broken_by(rootfs, folder, saved, steps), lambda line: line.split(":")[0])
    if not check:
        gone = units_to_go(saved, installed.packages, lambda row: units_of(rootfs, row))
        if steps or installed.interrupted:
            _restore(request._replace(saved=saved), steps, installed)
        shutil.rmtree(place_of(rootfs, WORK), ignore_errors=True)
        restore_links(rootfs, saved, gone)
        _restore_marks(rootfs, saved, request.lock_timeout_s)
        mark(rootfs, folder, "restored")
    return [dict(step._asdict()) for step in steps]


def _restore(request: RestoreRequest, steps: List[Step], installed: Installed) -> None:
    rootfs, folder, saved = request.rootfs, request.folder, request.saved
    mark(rootfs, folder, "restoring")
    unmet_before = unmet_dependencies(rootfs)
    if installed.interrupted:
        merge_journal(rootfs)
        steps = plan_restore(saved, read_installed(rootfs), deb_version_key)
    _code, log = run_apart(rootfs, _apt_commands(request, steps), DEADLINE_S, folder)
    remaining = plan_restore(saved, read_installed(rootfs), deb_version_key)
    # apt refuses to run while a package cannot be configured. dpkg runs, but does not wait for its
    # lock.
    if remaining:
        wait_for_locks(rootfs, APT_LOCKS, request.lock_timeout_s)
        _code, log = run_apart(
            rootfs, _dpkg_commands(rootfs, folder, saved, remaining), DEADLINE_S, folder
        )
    now = read_installed(rootfs)
    problems = not_restored(plan_restore(saved, now, deb_version_key)) + [
        name + " is not configured" for name in not_configured(now, now.packages)
    ]
    problems += [line for line in unmet_dependencies(rootfs) if line not in unmet_before]
    refuse_unlike(rootfs, folder, problems, "apt", log)


def _debs(folder: str, saved: Dict[str, Any], steps: Sequence[Step]) -> List[str]:
    rows = {row["name"]: row for row in saved["packages"]}
    return [f"{folder}/{rows[step.name]['deb']}" for step in steps if step.after]


def _purged(saved: Dict[str, Any], steps: Sequence[Step]) -> List[str]:
    """Names of packages to purge: before their installation there were no configuration files of
    theirs."""
    bare = {
        row["name"]
        for row in saved["packages"]
        if row["before"] is None and not row["config_files"]
    }
    return [step.name for step in steps if step.after is None and step.name in bare]


def _apt_commands(request: RestoreRequest, steps: Sequence[Step]) -> List[List[str]]:
    """argvs to restore with apt, which finds the right order; [] if apt would remove other
    packages: dpkg is used then."""
    rootfs, folder, saved = request.rootfs, request.folder, request.saved
    view = make_view(rootfs, WORK)
    # today's pins do not apply to the former versions
    shutil.rmtree(place_of(rootfs, WORK + "/preferences.d"), ignore_errors=True)
    os.makedirs(place_of(rootfs, WORK + "/preferences.d"))
    arguments = _debs(folder, saved, steps) + [
        step.name + "-" for step in steps if step.after is None
    ]
    if not arguments:
        return []
    try:
        found = simulate(view, ["--fix-broken", *arguments])
    except Refused:
        return []
    wanted = {step.name for step in steps}
    if any(step.action == "remove" and step.name not in wanted for step in found):
        return []
    lock = ["-o", f"DPkg::Lock::Timeout={int(request.lock_timeout_s)}"]
    argv = [
        "apt-get",
        "-q",
        "-y",
        *view.options,
        *DPKG,
        *BARE,
        *ALLOW,
        *lock,
        "install",
        "--fix-broken",
        "--reinstall",
        *arguments,
    ]
    purged = _purged(saved, steps)
    return [inside(rootfs, argv)] + (
        [inside(rootfs, ["dpkg", "--purge", *purged])] if purged else []
    )


def _dpkg_commands(
    rootfs: str, folder: str, saved: Dict[str, Any], steps: Sequence[Step]
) -> List[List[str]]:
    force = ["--force-confdef", "--force-confold", "--force-downgrade", "--force-remove-reinstreq"]
    purged = _purged(saved, steps)
    removed = [step.name for step in steps if step.after is None and step.name not in purged]
    debs = _debs(folder, saved, steps)
    argvs = []
    if removed or purged:
        argvs.append(["dpkg", *force, "--force-depends", "--remove", *removed, *purged])
    if debs:
        argvs.append(["dpkg", *force, "--install", *debs])
    if purged:
        argvs.append(["dpkg", "--purge", *purged])
    return [inside(rootfs, argv) for argv in argvs]


def _restore_marks(rootfs: str, saved: Dict[str, Any], lock_timeout_s: float) -> None:
    """Restores holds and apt's marks of automatically installed packages."""
    installed = read_installed(rootfs)
    automatic = read_automatic(rootfs, installed.architecture)
    rows = [
        row
        for row in saved["packages"]
        if row["before"] is not None and row["name"] in installed.packages
    ]
    hold = [row["name"] for row in rows if row["held"] and not installed.packages[row["name"]].held]
    unhold = [
        row["name"] for row in rows if not row["held"] and installed.packages[row["name"]].held
    ]
    if hold or unhold:
        select_packages(rootfs, hold, unhold, lock_timeout_s)
    for command, wanted in (("auto", True), ("manual", False)):
        names = [
            row["name"]
            for row in rows
            if row["automatic"] == wanted and (row["name"] in automatic) != wanted
        ]
        if names:
            run(rootfs, ["apt-mark", command, *names])
