"""Brings packages back to what a saved state knows, from the packages that it kept; after a success, after a failure half way, and more than once."""

from __future__ import annotations

import os
import shutil

from ..files import place_of
from .apt import ALLOW, BARE, DPKG, Refused, inside, make_view, run, simulate
from .apt_output import said_lines
from .dnf_run import restore_rpms
from .installed import read_automatic, read_installed
from .judging import whole
from .locks import wait_for_locks
from .manager import select_packages, settle_journal
from .restore_plan import check_kept, plan_restore
from .saved import mark, read_saved
from .unit import WORK, run_apart, wait_for_earlier

DEADLINE_S = 3600


def restore_packages(rootfs, folder, lock_timeout_s, check):
    """[{name, action, before, after}] of what was brought back, or would be. folder: of the saved state, a path of the node. Raises ValueError, OSError."""
    saved = read_saved(rootfs, folder)
    if saved is None:
        return []
    if saved.get("manager") == "rpm":
        return restore_rpms(rootfs, folder, saved, lock_timeout_s, check)
    if not check:
        wait_for_earlier(lock_timeout_s)
        wait_for_locks(rootfs, lock_timeout_s)
    installed = read_installed(rootfs)
    steps = plan_restore(saved, installed)
    check_kept(rootfs, folder, saved, steps)
    if not check:
        if steps or installed.interrupted:
            _go_back(rootfs, folder, saved, steps, installed)
        shutil.rmtree(place_of(rootfs, WORK), ignore_errors=True)
        _restore_marks(rootfs, saved, lock_timeout_s)
        mark(rootfs, folder, "restored")
    return [dict(step._asdict()) for step in steps]


def _go_back(rootfs, folder, saved, steps, installed):
    mark(rootfs, folder, "restoring")
    if installed.interrupted:
        settle_journal(rootfs)
        steps = plan_restore(saved, read_installed(rootfs))
    _code, log = run_apart(rootfs, _commands(rootfs, folder, saved, steps), DEADLINE_S, folder)
    still = plan_restore(saved, read_installed(rootfs))
    if still:  # apt could not: a package that does not configure bars its way; dpkg goes through
        _code, log = run_apart(rootfs, _plain_commands(rootfs, folder, saved, still), DEADLINE_S, folder)
    now = read_installed(rootfs)
    still = plan_restore(saved, now)
    broken = whole(now, now.packages)
    if still or broken:
        told = ["{} is {}, was {}".format(step.name, step.before or "gone", step.after or "not there") for step in still]
        told += [name + " is not configured" for name in broken]
        message = "expected every package as it was, found: {}; apt: {}".format("; ".join(told[:12]), " | ".join(said_lines(log)))
        mark(rootfs, folder, "failed", message)
        raise ValueError(message)


def _debs(folder, saved, steps):
    rows = {row["name"]: row for row in saved["packages"]}
    return ["{}/{}".format(folder, rows[step.name]["deb"]) for step in steps if step.after]


def _purged(saved, steps):
    """Names that had left no configuration before they came."""
    bare = {row["name"] for row in saved["packages"] if row["before"] is None and not row["config_files"]}
    return [step.name for step in steps if step.after is None and step.name in bare]


def _commands(rootfs, folder, saved, steps):
    """apt's way, which knows the order; none where it would take away what nobody meant, and then dpkg's."""
    view = make_view(rootfs, WORK)
    shutil.rmtree(place_of(rootfs, WORK + "/preferences.d"), ignore_errors=True)  # no pin of today counts for what was
    os.makedirs(place_of(rootfs, WORK + "/preferences.d"))
    words = _debs(folder, saved, steps) + [step.name + "-" for step in steps if step.after is None]
    if not words:
        return []
    try:
        found = simulate(view, ["--fix-broken"] + words, False)
    except Refused:
        return []
    wanted = {step.name for step in steps}
    if any(step.action == "remove" and step.name not in wanted for step in found):
        return []
    argv = ["apt-get", "-q", "-y"] + view.options + DPKG + BARE + ALLOW + ["install", "--fix-broken", "--reinstall"] + words
    purged = _purged(saved, steps)
    return [inside(rootfs, argv)] + ([inside(rootfs, ["dpkg", "--purge"] + purged)] if purged else [])


def _plain_commands(rootfs, folder, saved, steps):
    force = ["--force-confdef", "--force-confold", "--force-downgrade", "--force-remove-reinstreq"]
    purged = _purged(saved, steps)
    removed = [step.name for step in steps if step.after is None and step.name not in purged]
    debs = _debs(folder, saved, steps)
    argvs = []
    if removed or purged:
        argvs.append(["dpkg"] + force + ["--force-depends", "--remove"] + removed + purged)
    if debs:
        argvs.append(["dpkg"] + force + ["--install"] + debs)
    if purged:
        argvs.append(["dpkg", "--purge"] + purged)
    return [inside(rootfs, argv) for argv in argvs]


def _restore_marks(rootfs, saved, lock_timeout_s):
    """Holds, and what apt calls automatic, as they were."""
    installed = read_installed(rootfs)
    automatic = read_automatic(rootfs, installed.architecture)
    rows = [row for row in saved["packages"] if row["before"] is not None and row["name"] in installed.packages]
    hold = [row["name"] for row in rows if row["held"] and not installed.packages[row["name"]].held]
    unhold = [row["name"] for row in rows if not row["held"] and installed.packages[row["name"]].held]
    if hold or unhold:
        select_packages(rootfs, hold, unhold, lock_timeout_s)
    for word, wanted in (("auto", True), ("manual", False)):
        names = [row["name"] for row in rows if row["automatic"] == wanted and (row["name"] in automatic) != wanted]
        if names:
            run(rootfs, ["apt-mark", word] + names)
