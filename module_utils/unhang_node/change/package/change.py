"""Changes packages with apt: looked at beforehand, with a way back, in a unit of its own, and read back."""

from __future__ import annotations

import fnmatch
import os
import shutil
from collections import namedtuple

from ..files import place_of, write_text
from ..journal import saved_states
from ..journal.node_lock import remove_if_empty, stay_at_work
from .apt import ALLOW, BARE, DPKG, Refused, inside, make_view, needed_again, offers_of, private_folder, run, simulate, sizes_of, update, words_of
from .apt_output import said_lines
from .holds import PIN_FILE
from .installed import read_installed, version_of
from .judging import is_met, not_offered, read_back, refusals, whole
from .locks import wait_for_locks
from .manager import settle_journal
from .pins import plan_pin
from .saved import folder_of, forget_fetched, mark, remove_new
from .space import MIB, STATES, boot_bytes, lacking, read_boot_sizes, read_rooms, root_bytes
from .unit import KILLED, WORK, is_at_work, run_apart, wait_for_earlier
from .way_back import fetch_new, save_way_back

DEFAULTS = {
    "install": {}, "remove": [], "remove_sources": [], "allow_remove": [], "state_id": "", "allow_no_rollback": False, "allow_downgrade": False,
    "repair": False, "change_held": False, "pin": None, "expect": {}, "update_cache": True, "recommends": False, "lock_timeout_s": 300, "fetch_timeout_s": 600,
    "deadline_s": 3600, "simulate_only": False, "root_free_min_mib": 500, "boot_free_min_mib": 20, "rootfs": "/", "modules": {},
}  # fmt: skip

# steps: what apt would do; refused: why it must not be done; pin: (path, before, after) or None; repairs: names of packages that are not whole;
# streams: {module of dnf: (stream before, after)}.
Plan = namedtuple("Plan", "request writes installed steps refused offers pin repairs view words warnings waited streams", defaults=({},))
# What was done. stopped_at: "" or fetching, applying; said: why it stopped.
Done = namedtuple("Done", "fetched repacked after stopped_at said log audit")
NOTHING = Done([], [], {}, "", "", [], [])


def plan_change(request, writes):
    """Plan for a request (DEFAULTS has its keys). writes: False in check mode: apt then looks at copies. Raises ValueError (Locked), OSError.

    close_plan has to follow.
    """
    request = dict(DEFAULTS, **{key: value for key, value in request.items() if value is not None})
    rootfs = request["rootfs"]
    waited = [text for text in (wait_for_earlier(request["lock_timeout_s"]), wait_for_locks(rootfs, request["lock_timeout_s"])) if text]
    installed = read_installed(rootfs)
    leaving = of_sources(installed, request)
    pin = _pin(request)
    plan = Plan(request, writes, installed, [], [], {}, pin, _unfinished(installed), None, words_of(request["install"], request["remove"]), [], waited)
    if request["modules"]:
        return plan._replace(refused=["expected no module streams, which are dnf's, on a node of dpkg"])
    if plan.repairs and not request["repair"]:
        told = "expected every package to be installed to its end, found {}; run dpkg --configure -a and apt-get --fix-broken install, or allow repair: true"
        return plan._replace(refused=[told.format(", ".join(plan.repairs[:12]))])
    if is_met(request, installed) and not leaving:
        return plan
    return _looked_at(plan, leaving)


def of_sources(installed, request):
    """Names of installed packages of the sources that are to go, without what is asked for."""
    globs = request["remove_sources"]
    return {name for name, source in installed.sources.items() if name not in request["install"] and any(fnmatch.fnmatchcase(source, glob) for glob in globs)}


def _pin(request):
    if not request["pin"]:
        return None
    path = request["pin"]["file"]
    return (path,) + plan_pin(request["rootfs"], path, request["pin"].get("stanzas") or [])


def _unfinished(installed):
    return installed.unfinished or (["a dpkg that was cut off"] if installed.interrupted else [])


def _looked_at(plan, leaving):
    """The plan with what apt would do, and why not."""
    plan = plan._replace(view=open_view(plan.request, plan.pin, plan.writes))
    try:
        return _simulated(plan, leaving)
    except BaseException:
        close_plan(plan)
        raise


def _simulated(plan, leaving):
    request, rootfs, view = plan.request, plan.request["rootfs"], plan.view
    warnings = update(view, request["fetch_timeout_s"]) if request["update_cache"] else []
    offers = offers_of(view, {name.split(":")[0] for name in list(request["install"]) + list(request["expect"])})
    plan = plan._replace(offers=offers, warnings=warnings)
    if leaving:
        to_come = _still_to_come(request, plan.installed)["install"]
        leaving -= needed_again(view, leaving, words_of(to_come, []), request["recommends"])
        request = dict(request, remove=sorted(set(request["remove"]) | leaving))
        plan = plan._replace(request=request, words=words_of(request["install"], request["remove"]))
    missing = not_offered(_still_to_come(request, plan.installed), offers)
    if missing:
        return plan._replace(refused=missing + warnings)
    if plan.installed.interrupted and plan.writes:
        settle_journal(rootfs)
        plan = plan._replace(installed=read_installed(rootfs))
    try:
        steps = simulate(view, _fixing(plan) + plan.words, request["recommends"])
    except Refused as problem:
        return plan._replace(refused=["expected {}, found that apt cannot: {}".format(" ".join(plan.words), problem)] + warnings)
    refused = refusals(request, plan.installed, steps)
    return plan._replace(steps=steps, refused=refused + _without_room(plan._replace(steps=steps)))


def _still_to_come(request, installed):
    """The request without what is there already, which no repository has to have."""
    there = {name for name, version in request["install"].items() if version and version_of(installed, name) == version}
    return dict(request, install={name: version for name, version in request["install"].items() if name not in there})


def _fixing(plan):
    return ["--fix-broken"] if plan.repairs else []


def open_view(request, pin, writes):
    """What apt sees: without unhang's own holds where those may move, with the pins as they will be."""
    rootfs = request["rootfs"]
    if writes:
        folder = WORK
        os.makedirs(place_of(rootfs, folder), mode=0o700, exist_ok=True)
    else:
        folder = private_folder(rootfs)
    without = (os.path.basename(PIN_FILE),) if request["change_held"] else ()
    more = {os.path.basename(pin[0]): pin[2]} if pin else {}
    return make_view(rootfs, folder, without, more, private=not writes)


def close_plan(plan):
    """Takes away what the look and the change needed, unless the package manager still works with it."""
    rootfs = plan.request["rootfs"]
    if plan.writes and not is_at_work():
        shutil.rmtree(place_of(rootfs, WORK), ignore_errors=True)
        remove_if_empty(rootfs)
    if plan.view and plan.view.folder != WORK:
        shutil.rmtree(place_of(rootfs, plan.view.folder), ignore_errors=True)


def _without_room(plan):
    request, rootfs = plan.request, plan.request["rootfs"]
    coming = ["{}={}".format(step.name, step.after) for step in plan.steps if step.after is not None]
    going = [step.name for step in plan.steps if step.before is not None]
    _code, said = run(rootfs, ["dpkg-query", "-W", "-f", "${Installed-Size}\\n"] + going) if going else (0, "")
    old_bytes = sum(int(word) for word in said.split() if word.isdigit()) * 1024
    needs = root_bytes(plan.steps, sizes_of(plan.view, coming), old_bytes)
    needs["/boot"] = boot_bytes(plan.steps, *read_boot_sizes(rootfs))
    least = request["root_free_min_mib"] * MIB
    return lacking(needs, read_rooms(rootfs), {"/": least, "/usr": least, "/var": least, STATES: least // 4, "/boot": request["boot_free_min_mib"] * MIB})


def changes_of(plan):
    """[{name, action, before, after}] of a plan, packages that are only brought to their end among them."""
    rows = [dict(step._asdict()) for step in plan.steps]
    known = {step.name for step in plan.steps}
    for name in plan.repairs if plan.request["repair"] else ():
        if name not in known:
            version = version_of(plan.installed, name)
            rows.append({"name": name, "action": "configure", "before": version, "after": version})
    return sorted(rows, key=lambda row: row["name"])


def is_change(plan):
    """True when there is something to be done."""
    return bool(changes_of(plan)) or bool(plan.streams) or bool(plan.pin and plan.pin[1] != plan.pin[2])


def apply_change(plan):
    """Done. Raises ValueError when there is no way back, or the package manager has not come to its end; OSError."""
    request = plan.request
    folder = folder_of(request["state_id"]) if request["state_id"] else ""
    if folder:
        stay_at_work(saved_states.folder_of(request["rootfs"], request["state_id"]))
    fetched, repacked = [], []
    if plan.steps:
        try:
            fetched, repacked = _prepare(plan, folder)
        except Refused as problem:
            if folder:
                forget_fetched(request["rootfs"], folder, "nothing was touched: {}".format(problem))
            return NOTHING._replace(stopped_at="fetching", said=str(problem))
    if plan.pin and plan.pin[1] != plan.pin[2]:
        saved_states.keep_files(request["rootfs"], request["state_id"], [plan.pin[0]])
        write_text(place_of(request["rootfs"], plan.pin[0]), plan.pin[2])
    if not changes_of(plan):
        return NOTHING
    _mark(plan, folder, "applying", "")
    code, log = run_apart(request["rootfs"], _commands(plan, folder), request["deadline_s"], folder)
    done = _read_back(plan, code, log)._replace(fetched=fetched, repacked=repacked)
    try:
        _mark(plan, folder, "failed" if done.stopped_at else "done", done.said)
        if plan.steps and folder:
            write_text(place_of(request["rootfs"], folder + "/packages/apt.log"), log, 0o600)
    except OSError as problem:
        if not done.stopped_at:
            raise
        # A file system that is full: the state says "applying" still, which a run after this one goes on with.
        return done._replace(said="{}; and it could not be written down: {}".format(done.said, problem))
    if folder and not done.stopped_at:
        remove_new(request["rootfs"], folder)
    return done


def _mark(plan, folder, status, message):
    if folder:
        mark(plan.request["rootfs"], folder, status, message)


def _prepare(plan, folder):
    """(fetched, repacked). Raises Refused: nothing was touched."""
    request = plan.request
    if not folder and not request["allow_no_rollback"]:
        raise Refused("expected a saved state to keep the way back in, found none; give state_id, or allow_no_rollback: true")
    fetched, repacked, missing = [], [], []
    if folder:
        fetched, repacked, missing = save_way_back(plan.view, folder, plan.steps, plan.installed, request, request["fetch_timeout_s"])
    if missing and not request["allow_no_rollback"]:
        raise Refused("; ".join(missing) + "; allow_no_rollback: true goes on without a way back")
    new = fetch_new(plan.view, folder or WORK, _fixing(plan) + plan.words, request["recommends"], request["fetch_timeout_s"])
    return fetched + new, repacked


def _commands(plan, folder):
    """argv of what is run apart, in order."""
    rootfs, request = plan.request["rootfs"], plan.request
    if not plan.steps:
        return [inside(rootfs, ["dpkg", "--configure", "-a"]), inside(rootfs, ["apt-get", "-q", "-y", "--no-remove"] + DPKG + ["--fix-broken", "install"])]
    options = plan.view.options + DPKG + ([] if request["recommends"] else BARE) + ALLOW
    lock = ["-o", "DPkg::Lock::Timeout={}".format(int(request["lock_timeout_s"]))]
    archives = ["-o", "Dir::Cache::Archives={}/packages/new".format(folder or WORK)]
    return [inside(rootfs, ["apt-get", "-q", "-y"] + options + lock + archives + ["install"] + _fixing(plan) + plan.words)]


def _read_back(plan, code, log):
    installed = read_installed(plan.request["rootfs"])
    after, wrong, told = read_back(plan.request, plan.installed, plan.steps, installed)
    broken = whole(installed, installed.packages)
    lines = said_lines(log, 12)
    if not (code or wrong or broken or told or installed.interrupted):
        return NOTHING._replace(after=after, log=lines[-3:])
    said = "; ".join(wrong + [line for line in told if line not in wrong] + ["{} is not configured".format(name) for name in broken])
    said = said or "apt-get ended with {}".format(code)
    said = "the package manager was killed half way; " + said if code == KILLED else said
    said = "{}; apt: {}".format(said, " | ".join(lines))
    return NOTHING._replace(after=after, stopped_at="applying", said=said, log=lines, audit=audit(plan.request["rootfs"]))


def audit(rootfs):
    """What dpkg --audit says is not whole, as lines."""
    _code, said = run(rootfs, ["dpkg", "--audit"])
    return [" ".join(line.split()) for line in said.splitlines() if line.startswith(" ")][:20]
