"""Plans and carries out a change of packages on a node of rpm; gives the same Plan and Done as package_change does for apt."""

from __future__ import annotations

import shutil

from ..files import place_of
from ..journal import saved_states
from ..journal.node_lock import remove_if_empty, stay_at_work
from .apt import Refused, private_folder
from .apt_output import said_lines
from .change import DEFAULTS, NOTHING, Plan
from .dnf import apply_commands, fetch_new, fetch_old, offers_of, read_installed_rpms, restore_commands, simulate
from .dnf_modules import enabled_streams, file_of, switches
from .judging import is_met, not_offered, read_back, refusals
from .restore_plan import check_kept, plan_restore
from .saved import folder_of, forget_fetched, mark, merge_rows, read_saved, write_saved
from .unit import WORK, is_at_work, run_apart, wait_for_earlier
from .way_back import rows_of

DEADLINE_S = 3600


def plan_change(options, writes):
    """Plan. Raises ValueError (Locked), OSError. Nothing has to be closed after it."""
    request = dict(DEFAULTS, **{key: value for key, value in options.items() if value is not None})
    rootfs = request["rootfs"]
    waited = [text for text in [wait_for_earlier(request["lock_timeout_s"])] if text]
    installed = read_installed_rpms(rootfs)
    plan = Plan(request, writes, installed, [], [], {}, None, [], None, [], [], waited)
    if request["pin"] and request["pin"].get("stanzas"):
        return plan._replace(refused=["expected no pins of apt on a node of rpm; package_pin locks versions there"])
    plan = plan._replace(streams=switches(rootfs, request["modules"]))
    if is_met(request, installed) and not plan.streams:
        return plan
    folder = private_folder(rootfs)
    try:
        return _looked_at(plan, folder)
    finally:
        shutil.rmtree(place_of(rootfs, folder), ignore_errors=True)


def _looked_at(plan, folder):
    request, rootfs = plan.request, plan.request["rootfs"]
    offers = offers_of(rootfs, request, set(request["install"]) | set(request["expect"]), folder)
    plan = plan._replace(offers=offers)
    missing = not_offered(dict(request, install={name: version for name, version in request["install"].items() if name not in offers}), offers)
    try:
        steps = simulate(rootfs, request, plan.installed, folder, plan.streams)
    except Refused as problem:
        known = ["{} has on offer: {}".format(name, ", ".join(row["version"] for row in rows[:8])) for name, rows in sorted(offers.items())]
        return plan._replace(refused=missing + ["expected {}, found that dnf cannot: {}".format(_words(request), problem)] + known)
    return plan._replace(steps=steps, refused=refusals(request, plan.installed, steps))


def _words(request):
    """A request in a line, for a person."""
    rows = ["{} {}".format(name, version).strip() for name, version in sorted(request["install"].items())]
    rows += ["{} gone".format(name) for name in sorted(request["remove"])] + ["module {}:{}".format(*row) for row in sorted(request["modules"].items())]
    return ", ".join(rows)


def apply_change(plan):
    """Done. Raises ValueError, OSError."""
    request, rootfs = plan.request, plan.request["rootfs"]
    folder = folder_of(request["state_id"]) if request["state_id"] else ""
    if folder:
        stay_at_work(saved_states.folder_of(rootfs, request["state_id"]))
    try:
        fetched = _prepare(plan, folder)
    except Refused as problem:
        if folder:
            forget_fetched(rootfs, folder, "nothing was touched: {}".format(problem))
        return NOTHING._replace(stopped_at="fetching", said=str(problem))
    if folder:
        mark(rootfs, folder, "applying")
    try:
        code, log = run_apart(rootfs, apply_commands(rootfs, request, plan.streams), request["deadline_s"], folder)
    finally:
        _clear_work(rootfs)
    done = _read_back(plan, code, log)._replace(fetched=fetched)
    if folder:
        mark(rootfs, folder, "failed" if done.stopped_at else "done", done.said)
    return done


def _clear_work(rootfs):
    if not is_at_work():
        shutil.rmtree(place_of(rootfs, WORK), ignore_errors=True)
        remove_if_empty(rootfs)


def _prepare(plan, folder):
    request, rootfs = plan.request, plan.request["rootfs"]
    if not folder and not request["allow_no_rollback"]:
        raise Refused("expected a saved state to keep the way back in, found none; give state_id, or allow_no_rollback: true")
    fetched = []
    if folder:
        earlier = read_saved(rootfs, folder) or {}
        rows = merge_rows(earlier.get("packages", []), rows_of(plan.steps, plan.installed, set()))
        asked = {key: request[key] for key in ("install", "remove", "modules")}
        streams = dict({module: before for module, (before, _after) in plan.streams.items()}, **earlier.get("streams", {}))
        saved = dict(earlier, status="fetching", message="", manager="rpm", packages=rows, request=asked, streams=streams)
        saved_states.keep_files(rootfs, request["state_id"], [file_of(module) for module in plan.streams])
        write_saved(rootfs, folder, saved)
        fetched, missing = fetch_old(rootfs, request, folder, [row for row in rows if row["before"] is not None and row["deb"] is None])
        if missing and not request["allow_no_rollback"]:
            raise Refused("; ".join(missing) + "; allow_no_rollback: true goes on without a way back")
        write_saved(rootfs, folder, dict(saved, status="fetched"))
    folder = private_folder(rootfs)
    try:
        fetch_new(rootfs, request, plan.streams, folder)
    finally:
        shutil.rmtree(place_of(rootfs, folder), ignore_errors=True)
    return fetched


def _read_back(plan, code, log):
    installed = read_installed_rpms(plan.request["rootfs"])
    after, wrong, told = read_back(plan.request, plan.installed, plan.steps, installed)
    enabled = enabled_streams(plan.request["rootfs"]) if plan.streams else {}
    wrong += [
        "expected module stream {}:{}, found {}".format(module, stream, enabled.get(module) or "none enabled")
        for module, (_before, stream) in sorted(plan.streams.items())
        if enabled.get(module) != stream
    ]
    lines = said_lines(log, 12)
    if not (code or wrong or told):
        return NOTHING._replace(after=after, log=lines[-3:])
    said = "{}; dnf: {}".format("; ".join(wrong + told) or "dnf ended with {}".format(code), " | ".join(lines))
    return NOTHING._replace(after=after, stopped_at="applying", said=said, log=lines)


def restore_rpms(rootfs, folder, saved, lock_timeout_s, check):
    """As package_restore.restore_packages, for a state whose packages are rpm's."""
    if not check:
        wait_for_earlier(lock_timeout_s)
    steps = plan_restore(saved, read_installed_rpms(rootfs))
    check_kept(rootfs, folder, saved, steps)
    if steps and not check:
        mark(rootfs, folder, "restoring")
        _code, log = run_apart(rootfs, restore_commands(rootfs, folder, saved, steps), DEADLINE_S, folder)
        _clear_work(rootfs)
        still = plan_restore(saved, read_installed_rpms(rootfs))
        if still:
            told = ["{} is {}, was {}".format(step.name, step.before or "gone", step.after or "not there") for step in still]
            message = "expected every package as it was, found: {}; rpm: {}".format("; ".join(told[:12]), " | ".join(said_lines(log)))
            mark(rootfs, folder, "failed", message)
            raise ValueError(message)
    if not check:
        mark(rootfs, folder, "restored")
    return [dict(step._asdict()) for step in steps]
