"""Changes packages with dnf 4 and rpm: simulated first, old packages kept, run in a systemd unit,
and read back."""

from __future__ import annotations

import shutil
from typing import List, Sequence

from ...atomic_files import place_of
from ...config.unit_links import keep_links
from ...journal import saved_states
from ...journal.node_lock import remove_if_empty, stay_at_work
from ..judging import is_met, not_offered, read_back, refusals
from ..programs import error_lines, private_folder
from ..saved import (
    folder_of,
    forget_damaged,
    forget_fetched,
    mark,
    merge_rows,
    read_saved,
    rows_of,
    seal_kept,
    write_saved,
)
from ..unit import WORK, is_at_work, run_apart, wait_for_earlier
from ..values import ChangeResult, PackagePlan, Refused, Request, Step
from .commands import (
    apply_commands,
    fetch_new,
    fetch_old,
    offers_of,
    read_installed_rpms,
    simulate,
    units_of,
)
from .consistency import unmet_dependencies
from .modules import enabled_streams, file_of, switches


def plan_change(request: Request, writes: bool) -> PackagePlan:
    """The plan of a change, as dnf simulates it. Raises ValueError (Locked), OSError."""
    waited = [text for text in [wait_for_earlier(request.lock_timeout_s)] if text]
    plan = PackagePlan(
        request=request, writes=writes, installed=read_installed_rpms(request.rootfs), waited=waited
    )
    if request.pin and request.pin.get("stanzas"):
        return plan._replace(
            refused=["pins of apt are asked for on a node of rpm; package_pin locks versions there"]
        )
    plan = plan._replace(streams=switches(request.rootfs, request.modules))
    if is_met(request, plan.installed) and not plan.streams:
        return plan
    folder = private_folder(request.rootfs)
    try:
        return _simulated(plan, folder)
    finally:
        shutil.rmtree(place_of(request.rootfs, folder), ignore_errors=True)


def _simulated(plan: PackagePlan, folder: str) -> PackagePlan:
    request = plan.request
    offers = offers_of(request, set(request.install) | set(request.expect), folder)
    plan = plan._replace(offers=offers)
    unknown = {name: version for name, version in request.install.items() if name not in offers}
    missing = not_offered(request._replace(install=unknown), offers)
    try:
        steps = simulate(request, plan.installed, folder, plan.streams)
    except Refused as problem:
        known = [
            f"{name} has on offer: {', '.join(row['version'] for row in rows[:8])}"
            for name, rows in sorted(offers.items())
        ]
        return plan._replace(
            refused=[
                *missing,
                f"dnf cannot do {_request_line(request)}: {problem}",
                *known,
            ]
        )
    return plan._replace(
        steps=steps, refused=refusals(request, plan.installed, steps) + installed_beside(steps)
    )


def installed_beside(steps: Sequence[Step]) -> List[str]:
    """A line for each version that dnf would install beside another one, as it does with kernels
    (installonlypkgs of dnf.conf(5)).

    In a rollback `rpm --upgrade --oldpackage` would erase all other versions, of the running kernel
    too.
    """
    why = "which no rollback could take away again alone; install it first with dnf"
    beside = [
        step for step in steps if step.action == "install" and step.before not in (None, step.after)
    ]
    return [
        f"{step.name} {step.after} would be installed beside {step.before}, {why}"
        for step in beside
    ]


def _request_line(request: Request) -> str:
    """A request as one line for a person."""
    rows = [f"{name} {version}".strip() for name, version in sorted(request.install.items())]
    rows += [f"{name} gone" for name in sorted(request.remove)]
    rows += [f"module {module}:{stream}" for module, stream in sorted(request.modules.items())]
    return ", ".join(rows)


def apply_change(plan: PackagePlan) -> ChangeResult:
    """Raises ValueError, OSError."""
    request, rootfs = plan.request, plan.request.rootfs
    folder = folder_of(request.state_id) if request.state_id else ""
    if folder:
        stay_at_work(saved_states.folder_of(rootfs, request.state_id))
    try:
        fetched = _prepare(plan, folder)
    except Refused as problem:
        forget_fetched(rootfs, folder, f"nothing was touched: {problem}")
        return ChangeResult(stopped_at="fetching", message=str(problem))
    mark(rootfs, folder, "applying")
    unmet_before = unmet_dependencies(rootfs)
    try:
        code, log = run_apart(
            rootfs, apply_commands(request, plan.streams), request.deadline_s, folder
        )
    finally:
        clear_work(rootfs)
    result = _read_back(plan, code, log, unmet_before)._replace(fetched=fetched)
    mark(rootfs, folder, "failed" if result.stopped_at else "done", result.message)
    return result


def clear_work(rootfs: str) -> None:
    """Removes the work folder, unless the package manager still uses it."""
    if not is_at_work():
        shutil.rmtree(place_of(rootfs, WORK), ignore_errors=True)
        remove_if_empty(rootfs)


def _prepare(plan: PackagePlan, folder: str) -> List[str]:
    """Keeps the old packages and fetches the new ones; returns the file names of the old ones.
    Raises Refused before any change."""
    request, rootfs = plan.request, plan.request.rootfs
    if not folder and not request.allow_no_rollback:
        raise Refused(
            "no saved state can keep the old packages; give state_id, or allow_no_rollback: true"
        )
    fetched = _keep_old_packages(plan, folder) if folder else []
    view = private_folder(rootfs)
    try:
        fetch_new(request, plan.streams, view)
    finally:
        shutil.rmtree(place_of(rootfs, view), ignore_errors=True)
    return fetched


def _keep_old_packages(plan: PackagePlan, folder: str) -> List[str]:
    request, rootfs = plan.request, plan.request.rootfs
    earlier = read_saved(rootfs, folder) or {}
    rows = merge_rows(earlier.get("packages", []), rows_of(plan.steps, plan.installed, set()))
    keep_links(rootfs, rows, lambda row: units_of(rootfs, row))
    asked = {"install": request.install, "remove": request.remove, "modules": request.modules}
    streams = dict(
        {module: before for module, (before, _after) in plan.streams.items()},
        **earlier.get("streams", {}),
    )
    saved = dict(
        earlier,
        status="fetching",
        message="",
        manager="rpm",
        packages=rows,
        request=asked,
        streams=streams,
    )
    saved_states.keep_files(rootfs, request.state_id, [file_of(module) for module in plan.streams])
    write_saved(rootfs, folder, saved)
    forget_damaged(rootfs, folder, rows)
    fetched, missing = fetch_old(
        request, folder, [row for row in rows if row["before"] is not None and row["deb"] is None]
    )
    if missing and not request.allow_no_rollback:
        raise Refused("; ".join(missing) + "; allow_no_rollback: true continues without a rollback")
    seal_kept(rootfs, folder, rows)
    write_saved(rootfs, folder, dict(saved, status="fetched"))
    return fetched


def _read_back(plan: PackagePlan, code: int, log: str, unmet_before: Sequence[str]) -> ChangeResult:
    installed = read_installed_rpms(plan.request.rootfs)
    after, wrong, unexpected = read_back(plan.request, plan.installed, plan.steps, installed)
    enabled = enabled_streams(plan.request.rootfs) if plan.streams else {}
    wrong += [
        f"module stream {module}:{stream} is not enabled, but"
        f" {enabled.get(module) or 'none enabled'}"
        for module, (_before, stream) in sorted(plan.streams.items())
        if enabled.get(module) != stream
    ]
    wrong += [line for line in unmet_dependencies(plan.request.rootfs) if line not in unmet_before]
    lines = error_lines(log, 12)
    if not (code or wrong or unexpected):
        return ChangeResult(after=after, log=lines[-3:])
    message = (
        f"{'; '.join(wrong + unexpected) or f'dnf ended with {code}'}; dnf: {' | '.join(lines)}"
    )
    return ChangeResult(after=after, stopped_at="applying", message=message, log=lines)
