"""Restores rpm's packages from those in a saved state, without a repository."""

from __future__ import annotations

from typing import List

from ....base.versions.packages import rpm_version_key
from ...config.unit_links import restore_links, units_to_go
from ..backend import RestoreRequest
from ..restore_plan import checked_plan, not_restored, plan_restore, refuse_broken, refuse_unlike
from ..saved import mark
from ..unit import run_apart, wait_for_earlier
from ..values import Row
from .change import clear_work
from .commands import read_installed_rpms, refetch, restore_commands, units_of
from .consistency import broken_by, unmet_dependencies

DEADLINE_S = 3600


def restore(request: RestoreRequest) -> List[Row]:
    """[{name, action, before, after}] of packages that were restored, or would be. Raises
    ValueError, OSError."""
    rootfs, folder, check = request.rootfs, request.folder, request.check
    if not check:
        wait_for_earlier(request.lock_timeout_s)
    installed = read_installed_rpms(rootfs)
    saved, steps = checked_plan(request, installed, rpm_version_key, refetch)
    refuse_broken(
        broken_by(rootfs, folder, saved, steps), lambda line: line.split(": ")[0].rsplit("-", 2)[0]
    )
    gone = (
        set()
        if check
        else units_to_go(saved, installed.packages, lambda row: units_of(rootfs, row))
    )
    if steps and not check:
        mark(rootfs, folder, "restoring")
        unmet_before = unmet_dependencies(rootfs)
        _code, log = run_apart(
            rootfs, restore_commands(rootfs, folder, saved, steps), DEADLINE_S, folder
        )
        clear_work(rootfs)
        problems = not_restored(plan_restore(saved, read_installed_rpms(rootfs), rpm_version_key))
        problems += [line for line in unmet_dependencies(rootfs) if line not in unmet_before]
        refuse_unlike(rootfs, folder, problems, "rpm", log)
    if not check:
        restore_links(rootfs, saved, gone)
        mark(rootfs, folder, "restored")
    return [dict(step._asdict()) for step in steps]
