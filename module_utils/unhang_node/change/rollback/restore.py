"""Brings a node back to a saved state: what newer states did is rolled back first, for they stand on it.

Order: the package manager is waited for, and what cannot come back is refused, while nothing is touched yet. Then holds of ours are lifted, values of the
running system come back while what is installed fits them, then boot entry, packages, files, and holds as they were. Each step is a comparison with what was
saved, so that a rollback which was cut off is done again from its start.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..files import STATES, Saved, place_of, write_text
from ..journal.node_lock import stay_at_work
from ..journal.saved_states import (
    add_step,
    fail_state_as_it_is,
    folder_of,
    is_unchanged,
    keep_replaced,
    mark_rolled_back,
    read_saved,
    read_saved_files,
    read_saved_selections,
    read_states,
)
from ..package.held_groups import NotPossible, dpkg_name
from ..package.managers import backend_of
from ..package.pin import read_packages
from ..package.restore import changed_since, restore_packages, wait_until_free
from .boot import reboot_needed, restore_boot
from .running_values import LoadPynvml, Row, plan_running, put_back, reload_services, rows_of_rereaders


class RollbackPlan(NamedTuple):
    """What a rollback brings back."""

    states: Sequence[dict[str, Any]] = ()  # newest first
    files: Mapping[str, tuple[Saved | None, Saved | None]] = MappingProxyType({})  # {path: (now, as saved)}, those that differ
    folders: Sequence[str] = ()
    unhold_first: Sequence[str] = ()  # names as dpkg takes them
    hold: Sequence[str] = ()
    unhold: Sequence[str] = ()
    manual: Sequence[str] = ()  # what a person has to look at
    running: Sequence[Row] = ()
    reread: Sequence[Row] = ()  # services that have to read their files again
    named: Sequence[str] = ()  # packages that come back although somebody has changed them since


class RollbackResult(NamedTuple):
    """What was brought back."""

    boot: Sequence[dict[str, Any]] = ()
    packages: Sequence[dict[str, Any]] = ()
    waits_for: str | None = None  # kernel that has to run before packages of the running one can go
    manual: Sequence[str] = ()  # values of the running system that could not be put back


NOTHING = RollbackResult()
# Of these another one than the installed one runs until the node boots.
RUNNING = ("linux-image", "linux-modules", "kernel", "kmod-", "nvidia", "libnvidia", "cuda-drivers", "firmware-nvidia", "xserver-xorg-video-nvidia")


def states_to_roll_back(states: list[dict[str, Any]], state_id: str) -> list[dict[str, Any]]:
    """Those from the newest down to the one named, newest first, without what was rolled back before; none when that one was. Raises ValueError. Pure."""
    known = [state["id"] for state in states]
    if state_id not in known:
        raise ValueError("expected one of the node's saved states ({}), found {!r}".format(", ".join(known) or "it has none", state_id))
    chosen = states[known.index(state_id) :]
    broken = [state["message"] for state in chosen if state["status"] == "broken"]
    if broken:
        raise ValueError("; ".join(broken))
    if chosen[0]["status"] == "rolled_back":
        return []
    return [state for state in reversed(chosen) if state["status"] != "rolled_back"]


def newest_state(states: list[dict[str, Any]]) -> str | None:
    """Id of the newest state that was not rolled back, None when there is none. Pure."""
    standing = [state["id"] for state in states if state["status"] != "rolled_back"]
    return standing[-1] if standing else None


def needs_reboot(result: RollbackResult) -> bool:
    """True when what runs may be another one than what came back. Pure."""
    return bool(result.boot or result.waits_for or any(row["name"].startswith(RUNNING) for row in result.packages))


def no_pynvml() -> Any:
    """For who has no GPUs to bring back."""
    raise ImportError("no nvidia-ml-py was sent along")


def plan_restore(rootfs: str, state_id: str, load_pynvml: LoadPynvml = no_pynvml, named: Sequence[str] = ()) -> RollbackPlan:
    """RollbackPlan. Changes nothing. load_pynvml: () -> nvidia-ml-py, for modes of GPUs. Raises OSError, ValueError."""
    chosen = states_to_roll_back(read_states(rootfs), state_id)
    files, changed = _plan_files(rootfs, chosen)
    unhold_first, hold, unhold = _holds(rootfs, _saved_selections(rootfs, chosen))
    running, stays = plan_running(rootfs, [state["id"] for state in chosen], load_pynvml)
    stays = [*stays, *changed_since(rootfs, [f"{STATES}/{state['id']}" for state in chosen], named)]
    return RollbackPlan(
        states=chosen,
        files=files,
        folders=sorted({folder for state in chosen for folder in state["folders"]}, reverse=True),
        unhold_first=unhold_first,
        hold=hold,
        unhold=unhold,
        manual=[*changed, *stays],
        running=running,
        reread=rows_of_rereaders(rootfs, files),
        named=tuple(named),
    )


def _plan_files(rootfs: str, chosen: Sequence[dict[str, Any]]) -> tuple[dict[str, tuple[Saved | None, Saved | None]], list[str]]:
    """({path: (now, as it was saved)} of files that differ, [line on one that somebody changed since]). chosen: newest first."""
    saved: dict[str, Saved | None] = {}
    newest: dict[str, dict[str, Any]] = {}
    for state in chosen:  # what the oldest saved is what stands in the end
        kept = read_saved_files(folder_of(rootfs, state["id"]))
        for path in kept:
            newest.setdefault(path, state)
        saved.update(kept)
    now = {path: read_saved(rootfs, path) for path in saved}
    files = {path: (now[path], saved[path]) for path in sorted(saved) if now[path] != saved[path]}
    changed = [
        "{}: somebody changed it since; what is replaced is kept in {}/{}/replaced.json".format(path, STATES, newest[path]["id"])
        for path in files
        if not is_unchanged(rootfs, path, newest[path])
    ]
    return files, changed


def apply_restore(rootfs: str, plan: RollbackPlan, lock_timeout_s: float, load_pynvml: LoadPynvml = no_pynvml) -> RollbackResult:
    """RollbackResult. Raises OSError, ValueError, Locked; the states say then that it was begun, and it can be done again.

    With waits_for only the boot entry was brought back: the same call does the rest once that kernel runs.
    """
    for state in plan.states:
        stay_at_work(folder_of(rootfs, state["id"]))
        add_step(rootfs, state["id"], "rollback")
    try:
        result = _apply(rootfs, plan, lock_timeout_s, load_pynvml)
    except Exception as problem:
        for state in plan.states:
            fail_state_as_it_is(rootfs, state["id"], f"rollback: {problem}")
        raise
    for state in [] if result.waits_for else plan.states:
        mark_rolled_back(rootfs, state["id"])
    return result


def preview_others(rootfs: str, plan: RollbackPlan, lock_timeout_s: float) -> RollbackResult:
    """RollbackResult, as it would be."""
    return _restore_others(rootfs, plan, lock_timeout_s, _due_packages(rootfs, plan, lock_timeout_s), check=True)


def _apply(rootfs: str, plan: RollbackPlan, lock_timeout_s: float, load_pynvml: LoadPynvml) -> RollbackResult:
    due = _due_packages(rootfs, plan, lock_timeout_s)
    if due or plan.unhold_first or plan.hold:
        wait_until_free(rootfs, lock_timeout_s)
    if plan.unhold_first:
        backend_of(rootfs).set_holds(rootfs, [], plan.unhold_first, lock_timeout_s)
    manual = put_back(rootfs, plan.running, load_pynvml)
    result = _restore_others(rootfs, plan, lock_timeout_s, due, check=False)
    if result.waits_for:
        return result._replace(manual=manual)
    if plan.files:
        keep_replaced(rootfs, plan.states[0]["id"], {path: now for path, (now, _saved) in plan.files.items()})
    for path, (_now, saved) in sorted(plan.files.items()):
        _put_file_back(rootfs, path, saved)
    for folder in plan.folders:
        with contextlib.suppress(OSError):  # somebody else put something in
            os.rmdir(place_of(rootfs, folder))
    # Looked at again, for packages that came back have the selection that they came with.
    _unhold_first, hold, unhold = _holds(rootfs, _saved_selections(rootfs, plan.states))
    if hold or unhold:
        backend_of(rootfs).set_holds(rootfs, hold, unhold, lock_timeout_s)
    return result._replace(manual=manual + reload_services(plan.reread))


def _folders(plan: RollbackPlan) -> list[str]:
    return ["{}/{}".format(STATES, state["id"]) for state in plan.states]


def _due_packages(rootfs: str, plan: RollbackPlan, lock_timeout_s: float) -> list[Any]:
    """Rows of what comes back. Raises ValueError for what cannot, OSError. Changes nothing."""
    return [row for folder in _folders(plan) for row in restore_packages(rootfs, folder, lock_timeout_s, True, plan.named)]


def _restore_others(rootfs: str, plan: RollbackPlan, lock_timeout_s: float, due: Sequence[Any], check: bool) -> RollbackResult:
    """What those parts undo that have files of their own in a state's folder. due: packages that come back."""
    folders = _folders(plan)
    boot = [row for folder in folders for row in restore_boot(rootfs, folder, check)]
    waits_for = [release for release in (reboot_needed(rootfs, folder) for folder in folders) if release]
    if due and waits_for:
        return RollbackResult(boot=boot, packages=due if check else [], waits_for=waits_for[-1])
    packages = due if check else [row for folder in folders for row in restore_packages(rootfs, folder, lock_timeout_s, False, plan.named)]
    for folder in [] if check else folders:
        restore_boot(rootfs, folder, False)  # again: without the newer kernel the loader gets its earlier configuration, byte for byte
    return RollbackResult(boot=boot, packages=packages)


def _saved_selections(rootfs: str, states: Iterable[dict[str, Any]]) -> dict[str, str]:
    selections = {}
    for state in states:
        selections.update(read_saved_selections(folder_of(rootfs, state["id"])))
    return selections


def _holds(rootfs: str, selections: dict[str, str]) -> tuple[list[str], list[str], list[str]]:
    """(to be lifted first, to be held in the end, to be let go in the end). selections: {name: "install" or "hold"} as they were."""
    if not selections:
        return [], [], []
    try:
        _manager, database = read_packages(rootfs)
    except NotPossible as problem:
        raise ValueError(str(problem)) from None
    now = {dpkg_name(package): package.held for package in database.packages}
    unhold = sorted(name for name, was in selections.items() if was != "hold" and now.get(name))
    hold = sorted(name for name, was in selections.items() if was == "hold" and now.get(name) is False)
    return unhold, hold, unhold


def _put_file_back(rootfs: str, path: str, saved: Saved | None) -> None:
    place = place_of(rootfs, path)
    if saved is None:
        write_text(place, None)
        return
    write_text(place, saved["text"], saved["mode"])
    os.chmod(place, saved["mode"])
    if os.geteuid() == 0:
        os.chown(place, saved["uid"], saved["gid"])
