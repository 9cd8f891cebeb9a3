"""Changes packages with apt: simulated first, saved for a rollback, run in a systemd unit, and read
back."""

from __future__ import annotations

import fnmatch
import os
import shutil
from typing import List, Optional, Sequence, Set, Tuple

from ...atomic_files import STATE_FOLDER, place_of, write_text
from ...journal import saved_states
from ...journal.node_lock import remove_if_empty, stay_at_work
from ..judging import is_met, not_configured, not_offered, read_back, refusals
from ..lock_files import APT_LOCKS, wait_for_locks
from ..programs import error_lines, inside, private_folder, run
from ..saved import folder_of, forget_fetched, mark, remove_new
from ..space import MIB, boot_bytes, lacking, read_boot_sizes, read_rooms, root_bytes
from ..unit import KILLED, WORK, is_at_work, run_apart, wait_for_earlier
from ..values import ChangeResult, Installed, PackagePlan, Refused, Request, View
from .commands import (
    ALLOW,
    BARE,
    DPKG,
    arguments_of,
    make_view,
    offers_of,
    pinning_files,
    simulate,
    sizes_of,
    still_needed,
    update,
)
from .consistency import unmet_dependencies
from .fetch import fetch_new, keep_old_packages
from .holds import PIN_FILE, plan_pin
from .installed import read_installed
from .selections import merge_journal


def plan_change(request: Request, writes: bool) -> PackagePlan:
    """The plan of a change, as apt simulates it. writes: False in check mode: apt then works on
    copies. Raises ValueError (Locked), OSError. close_plan must follow."""
    rootfs = request.rootfs
    waited = [
        text
        for text in (
            wait_for_earlier(request.lock_timeout_s),
            wait_for_locks(rootfs, APT_LOCKS, request.lock_timeout_s),
        )
        if text
    ]
    installed = read_installed(rootfs)
    leaving = of_sources(installed, request)
    plan = PackagePlan(
        request=request,
        writes=writes,
        installed=installed,
        pin=_pin(request),
        repairs=installed.unfinished
        or (["a dpkg that was killed"] if installed.interrupted else []),
        arguments=arguments_of(request.install, request.remove),
        waited=waited,
    )
    if request.modules:
        return plan._replace(refused=["module streams are dnf's, and this is a node of dpkg"])
    if plan.repairs and not request.repair:
        next_step = (
            "run dpkg --configure -a and apt-get --fix-broken install, or allow repair: true"
        )
        return plan._replace(
            refused=[f"packages are not configured: {', '.join(plan.repairs[:12])}; {next_step}"]
        )
    if is_met(request, installed) and not leaving:
        return plan
    return _with_simulation(plan, leaving)


def of_sources(installed: Installed, request: Request) -> Set[str]:
    """Names of installed packages of the sources to remove, without the requested packages."""
    globs = request.remove_sources
    return {
        name
        for name, source in installed.sources.items()
        if name not in request.install and any(fnmatch.fnmatchcase(source, glob) for glob in globs)
    }


def _pin(request: Request) -> Optional[Tuple[str, Optional[str], Optional[str]]]:
    if not request.pin:
        return None
    path = request.pin["file"]
    before, after = plan_pin(request.rootfs, path, request.pin.get("stanzas") or [])
    return path, before, after


def _with_simulation(plan: PackagePlan, leaving: Set[str]) -> PackagePlan:
    """The plan with apt's steps, and the reasons of a refusal."""
    view = open_view(plan)
    try:
        return _simulated(plan._replace(view=view), view, leaving)
    except BaseException:
        close_plan(plan._replace(view=view))
        raise


def _simulated(plan: PackagePlan, view: View, leaving: Set[str]) -> PackagePlan:
    request = plan.request
    warnings = update(view, request.fetch_timeout_s) if request.update_cache else []
    offers = offers_of(view, {name.split(":")[0] for name in [*request.install, *request.expect]})
    plan = plan._replace(offers=offers, warnings=warnings)
    if leaving:
        to_come = _still_to_come(request, plan.installed).install
        leaving = leaving - still_needed(view, leaving, arguments_of(to_come, []))
        request = request._replace(remove=sorted(set(request.remove) | leaving))
        plan = plan._replace(
            request=request, arguments=arguments_of(request.install, request.remove)
        )
    missing = not_offered(_still_to_come(request, plan.installed), offers)
    if missing:
        return plan._replace(refused=missing + warnings)
    if plan.installed.interrupted and plan.writes:
        merge_journal(request.rootfs)
        plan = plan._replace(installed=read_installed(request.rootfs))
    try:
        steps = simulate(view, _fixing(plan) + plan.arguments)
    except Refused as problem:
        why = refused_for(view, _fixing(plan) + plan.arguments, problem)
        return plan._replace(refused=[why, *warnings])
    plan = plan._replace(steps=steps)
    return plan._replace(
        refused=refusals(request, plan.installed, steps) + _without_room(plan, view)
    )


def refused_for(view: View, arguments: Sequence[str], problem: Refused) -> str:
    """Why apt's simulation refuses these arguments: the cause first, with the files that pin."""
    pins = " and ".join(pinning_files(view, arguments))
    cause = f"{pins} pins other versions: " if pins else ""
    return f"{cause}{problem}; apt cannot do {' '.join(arguments)}"


def _still_to_come(request: Request, installed: Installed) -> Request:
    """The request without packages that are already installed: no repository needs to offer
    them."""
    there = {
        name
        for name, version in request.install.items()
        if version and installed.version(name) == version
    }
    return request._replace(
        install={name: version for name, version in request.install.items() if name not in there}
    )


def _fixing(plan: PackagePlan) -> List[str]:
    return ["--fix-broken"] if plan.repairs else []


def open_view(plan: PackagePlan) -> View:
    """The view for apt: without unhang's own holds if these packages may change, and with the
    future pins."""
    rootfs = plan.request.rootfs
    if plan.writes:
        folder = WORK
        os.makedirs(place_of(rootfs, folder), mode=0o700, exist_ok=True)
    else:
        folder = private_folder(rootfs)
    without = (os.path.basename(PIN_FILE),) if plan.request.change_held else ()
    more = {os.path.basename(plan.pin[0]): plan.pin[2]} if plan.pin else {}
    return make_view(rootfs, folder, without, more, private=not plan.writes)


def close_plan(plan: PackagePlan) -> None:
    """Removes the files of the simulation and the change, unless the package manager still uses
    them."""
    rootfs = plan.request.rootfs
    if plan.writes and not is_at_work():
        shutil.rmtree(place_of(rootfs, WORK), ignore_errors=True)
        remove_if_empty(rootfs)
    if plan.view and plan.view.folder != WORK:
        shutil.rmtree(place_of(rootfs, plan.view.folder), ignore_errors=True)


def _without_room(plan: PackagePlan, view: View) -> List[str]:
    request, rootfs = plan.request, plan.request.rootfs
    coming = [f"{step.name}={step.after}" for step in plan.steps if step.after is not None]
    going = [step.name for step in plan.steps if step.before is not None]
    sizes = (
        run(rootfs, ["dpkg-query", "-W", "-f", "${Installed-Size}\\n", *going])[1].split()
        if going
        else []
    )
    old_bytes = sum(int(size) for size in sizes if size.isdigit()) * 1024
    needs = root_bytes(plan.steps, sizes_of(view, coming), old_bytes)
    needs["/boot"] = boot_bytes(plan.steps, *read_boot_sizes(rootfs))
    least = request.root_free_min_mib * MIB
    minima = {
        "/": least,
        "/usr": least,
        "/var": least,
        STATE_FOLDER: least // 4,
        "/boot": request.boot_free_min_mib * MIB,
    }
    return lacking(needs, read_rooms(rootfs), minima)


def apply_change(plan: PackagePlan) -> ChangeResult:
    """Carries out the plan. Raises ValueError if no rollback is possible, or the package manager
    has not ended in time; OSError."""
    request = plan.request
    folder = folder_of(request.state_id) if request.state_id else ""
    if folder:
        stay_at_work(saved_states.folder_of(request.rootfs, request.state_id))
    fetched: List[str] = []
    repacked: List[str] = []
    if plan.steps:
        try:
            fetched, repacked = _prepare(plan, folder)
        except Refused as problem:
            forget_fetched(request.rootfs, folder, f"nothing was touched: {problem}")
            return ChangeResult(stopped_at="fetching", message=str(problem))
    if plan.pin and plan.writes_pin():
        saved_states.keep_files(request.rootfs, request.state_id, [plan.pin[0]])
        write_text(place_of(request.rootfs, plan.pin[0]), plan.pin[2])
    if not plan.changes():
        return ChangeResult()
    mark(request.rootfs, folder, "applying")
    code, log = run_apart(request.rootfs, _commands(plan, folder), request.deadline_s, folder)
    return _close(
        plan, folder, _read_back(plan, code, log)._replace(fetched=fetched, repacked=repacked), log
    )


def _close(plan: PackagePlan, folder: str, result: ChangeResult, log: str) -> ChangeResult:
    """Records how the change ended."""
    rootfs = plan.request.rootfs
    try:
        mark(rootfs, folder, "failed" if result.stopped_at else "done", result.message)
        if plan.steps and folder:
            write_text(place_of(rootfs, folder + "/packages/apt.log"), log, 0o600)
    except OSError as problem:
        if not result.stopped_at:
            raise
        # The file system is full: the state stays "applying", and the next run continues it.
        return result._replace(
            message=f"{result.message}; and the result could not be recorded: {problem}"
        )
    if folder and not result.stopped_at:
        remove_new(rootfs, folder)
    return result


def _prepare(plan: PackagePlan, folder: str) -> Tuple[List[str], List[str]]:
    """Keeps the old packages and fetches the new ones: (fetched, repacked). Raises Refused before
    any change."""
    request, view = plan.request, plan.view
    assert view is not None  # a plan with steps comes from a simulation, which has a view
    if not folder and not request.allow_no_rollback:
        raise Refused(
            "no saved state can keep the old packages; give state_id, or allow_no_rollback: true"
        )
    fetched: List[str] = []
    repacked: List[str] = []
    if folder:
        kept = keep_old_packages(view, folder, plan.steps, plan.installed, request)
        fetched, repacked = kept.fetched, kept.repacked
        if kept.missing and not request.allow_no_rollback:
            raise Refused(
                "; ".join(kept.missing) + "; allow_no_rollback: true continues without a rollback"
            )
    new = fetch_new(
        view,
        folder or WORK,
        _fixing(plan) + plan.arguments,
        request.fetch_timeout_s,
        request.lock_timeout_s,
    )
    _check_still_the_same(plan, view)
    return fetched + new, repacked


def _check_still_the_same(plan: PackagePlan, view: View) -> None:
    """Fetching takes minutes, in which another process may have changed packages: apt would then
    take other steps than those that were judged. Raises Refused, Locked, OSError."""
    wait_for_locks(plan.request.rootfs, APT_LOCKS, plan.request.lock_timeout_s)
    steps = simulate(view, _fixing(plan) + plan.arguments)
    if steps != plan.steps:
        others = sorted({step.name for step in {*steps} ^ {*plan.steps}})
        found = f"apt would take other steps now, for {', '.join(others[:12])}"
        raise Refused(
            f"packages are not as they were before the change was fetched: {found}; somebody has"
            " changed packages meanwhile; run the role again"
        )


def _commands(plan: PackagePlan, folder: str) -> List[List[str]]:
    """argvs to run in the systemd unit, in order."""
    rootfs, request = plan.request.rootfs, plan.request
    if not plan.steps or plan.view is None:
        return [
            inside(rootfs, ["dpkg", "--configure", "-a"]),
            inside(
                rootfs, ["apt-get", "-q", "-y", "--no-remove", *DPKG, "--fix-broken", "install"]
            ),
        ]
    options = [*plan.view.options, *DPKG, *BARE, *ALLOW]
    lock = ["-o", f"DPkg::Lock::Timeout={int(request.lock_timeout_s)}"]
    archives = ["-o", f"Dir::Cache::Archives={folder or WORK}/packages/new"]
    # Another process may get the lock in between: apt then plans again, and must fail rather than
    # remove packages that nobody has judged.
    keeping = [] if any(step.after is None for step in plan.steps) else ["--no-remove"]
    return [
        inside(
            rootfs,
            [
                "apt-get",
                "-q",
                "-y",
                *options,
                *lock,
                *archives,
                *keeping,
                "install",
                *_fixing(plan),
                *plan.arguments,
            ],
        )
    ]


def _read_back(plan: PackagePlan, code: int, log: str) -> ChangeResult:
    installed = read_installed(plan.request.rootfs)
    after, wrong, unexpected = read_back(plan.request, plan.installed, plan.steps, installed)
    broken = not_configured(installed, installed.packages)
    unmet = unmet_dependencies(plan.request.rootfs)
    lines = error_lines(log, 12)
    if not (code or wrong or broken or unexpected or unmet or installed.interrupted):
        return ChangeResult(after=after, log=lines[-3:])
    message = "; ".join(
        wrong
        + [line for line in unexpected if line not in wrong]
        + [f"{name} is not configured" for name in broken]
        + unmet
    )
    message = message or f"apt-get ended with {code}"
    message = "the package manager was killed half way; " + message if code == KILLED else message
    message = f"{message}; apt: {' | '.join(lines)}"
    return ChangeResult(
        after=after,
        stopped_at="applying",
        message=message,
        log=lines,
        audit=audit(plan.request.rootfs),
    )


def audit(rootfs: str) -> List[str]:
    """Packages that are not configured, as lines of dpkg --audit."""
    _code, output = run(rootfs, ["dpkg", "--audit"])
    return [" ".join(line.split()) for line in output.splitlines() if line.startswith(" ")][:20]
