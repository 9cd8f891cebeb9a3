"""Restores a saved state. Newer states are rolled back first, because they depend on it.

Order: wait for the package manager, refuse what cannot be restored (nothing is changed yet),
unhold, values of the running system that fit what is installed, boot entry, packages, files, holds.
Each step compares with the saved state, so an interrupted rollback can start again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ...base.parse.grub import Entry, parse_menu, release_of_image
from ..atomic_files import STATES, Saved, place_of, read_state, write_text
from ..boot.kernels import installed_releases
from ..boot.loader import run_command
from ..boot.parameters import MENUS
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
from ..package.pin import STATE as HOLDS
from ..package.pin import read_packages
from ..package.restore import changed_since, restore_packages, wait_until_free
from .boot import reboot_needed, restore_boot
from .running_values import (
    LoadPynvml,
    Row,
    plan_running,
    put_back,
    reload_services,
    rows_of_rereaders,
)


class RollbackPlan(NamedTuple):
    """The changes that a rollback will make."""

    states: Sequence[dict[str, Any]] = ()  # newest first
    # {path: (present, saved)} of the files that differ
    files: Mapping[str, tuple[Saved | None, Saved | None]] = MappingProxyType({})
    folders: Sequence[str] = ()
    unhold_first: Sequence[str] = ()  # names in dpkg's notation
    hold: Sequence[str] = ()
    unhold: Sequence[str] = ()
    our_holds: Sequence[str] = ()  # that unhang has set; any other is an admin's
    manual: Sequence[str] = ()  # lines for a person
    running: Sequence[Row] = ()
    reread: Sequence[Row] = ()  # services that must reload their files
    named: Sequence[str] = ()  # packages to restore even if somebody has changed them since
    changed: Sequence[str] = ()  # paths of files that somebody has changed since


class RollbackResult(NamedTuple):
    """The changes that a rollback has made."""

    boot: Sequence[dict[str, Any]] = ()
    packages: Sequence[dict[str, Any]] = ()
    # kernel release that must be booted before the packages of the running kernel can be removed
    waits_for: str | None = None
    manual: Sequence[str] = ()  # values of the running system that could not be restored
    menus: Sequence[str] = ()  # paths of GRUB's menus that were generated again instead of restored


NOTHING = RollbackResult()
# For these, the version that runs differs from the installed one until the node reboots.
RUNNING = (
    "linux-image",
    "linux-modules",
    "kernel",
    "kmod-",
    "nvidia",
    "libnvidia",
    "cuda-drivers",
    "firmware-nvidia",
    "xserver-xorg-video-nvidia",
)
# the kernel's command line, and parameters of its modules
READ_AT_BOOT = (*MENUS, "/etc/modprobe.d/")


def states_to_roll_back(states: list[dict[str, Any]], state_id: str) -> list[dict[str, Any]]:
    """The states from the newest to the named one, newest first, without states that were already
    rolled back; [] if the named one was. Raises ValueError. Pure."""
    known = [state["id"] for state in states]
    if state_id not in known:
        raise ValueError(
            f"expected one of the node's saved states ({', '.join(known) or 'it has none'}), found"
            f" {state_id!r}"
        )
    chosen = states[known.index(state_id) :]
    broken = [state["message"] for state in chosen if state["status"] == "broken"]
    if broken:
        raise ValueError("; ".join(broken))
    if chosen[0]["status"] == "rolled_back":
        return []
    return [state for state in reversed(chosen) if state["status"] != "rolled_back"]


def newest_state(states: list[dict[str, Any]]) -> str | None:
    """Id of the newest state that was not rolled back, None if there is none. Pure."""
    standing = [state["id"] for state in states if state["status"] != "rolled_back"]
    return standing[-1] if standing else None


def needs_reboot(plan: RollbackPlan, result: RollbackResult, boot_id: str | None) -> bool:
    """True if the running system may differ from the restored files. boot_id: of this boot, None if
    it is unknown. Pure."""
    has_booted = any(
        boot_id and state.get("boot_id") not in (None, boot_id) for state in plan.states
    )
    read_at_boot = any(path.startswith(READ_AT_BOOT) for path in plan.files) or any(
        row.kind == "boot_parameter" for row in plan.running
    )
    # A setting that was changed since the last boot has not taken effect yet.
    return bool(
        result.boot
        or result.waits_for
        or (has_booted and read_at_boot)
        or any(row["name"].startswith(RUNNING) for row in result.packages)
    )


def no_pynvml() -> Any:
    """load_pynvml for callers without GPU modes to restore: raises ImportError."""
    raise ImportError("no nvidia-ml-py was sent along")


def plan_restore(
    rootfs: str, state_id: str, load_pynvml: LoadPynvml = no_pynvml, named: Sequence[str] = ()
) -> RollbackPlan:
    """RollbackPlan. Changes nothing. load_pynvml: () -> nvidia-ml-py, for modes of GPUs. Raises
    OSError, ValueError."""
    chosen = states_to_roll_back(read_states(rootfs), state_id)
    files, newest = _plan_files(rootfs, chosen)
    changed = [path for path in files if not is_unchanged(rootfs, path, newest[path])]
    our_holds = read_state(rootfs, HOLDS).get("holds", ())
    unhold_first, hold, unhold, others = _holds(
        rootfs, _saved_selections(rootfs, chosen), our_holds
    )
    running, stays = plan_running(rootfs, [state["id"] for state in chosen], load_pynvml)
    stays = [*stays, *changed_since(rootfs, [f"{STATES}/{state['id']}" for state in chosen], named)]
    return RollbackPlan(
        states=chosen,
        files=files,
        folders=sorted({folder for state in chosen for folder in state["folders"]}, reverse=True),
        unhold_first=unhold_first,
        hold=hold,
        unhold=unhold,
        our_holds=our_holds,
        manual=[
            *(_changed_line(path, newest) for path in changed if path not in MENUS),
            *stays,
            *map(_held_line, others),
        ],
        running=running,
        reread=rows_of_rereaders(rootfs, files),
        named=tuple(named),
        changed=changed,
    )


def _plan_files(
    rootfs: str, chosen: Sequence[dict[str, Any]]
) -> tuple[dict[str, tuple[Saved | None, Saved | None]], dict[str, dict[str, Any]]]:
    """({path: (now, as it was saved)} of files that differ, {path: newest state that saved it}).
    chosen: newest first."""
    saved: dict[str, Saved | None] = {}
    newest: dict[str, dict[str, Any]] = {}
    for state in chosen:  # the oldest state has the original value
        kept = read_saved_files(folder_of(rootfs, state["id"]))
        for path in kept:
            newest.setdefault(path, state)
        saved.update(kept)
    now = {path: read_saved(rootfs, path) for path in saved}
    return {
        path: (now[path], saved[path]) for path in sorted(saved) if now[path] != saved[path]
    }, newest


def _changed_line(path: str, newest: Mapping[str, dict[str, Any]]) -> str:
    return (
        f"{path}: somebody changed it since; what is replaced is kept in"
        f" {STATES}/{newest[path]['id']}/replaced.json"
    )


def apply_restore(
    rootfs: str, plan: RollbackPlan, lock_timeout_s: float, load_pynvml: LoadPynvml = no_pynvml
) -> RollbackResult:
    """RollbackResult. Raises OSError, ValueError, Locked; the states then record that it was begun,
    and it can be repeated. If the result has waits_for, only the boot entry was restored: the same
    call restores the rest once that kernel runs."""
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
    """The RollbackResult that apply_restore would return, without changing anything."""
    return _restore_others(
        rootfs, plan, lock_timeout_s, _due_packages(rootfs, plan, lock_timeout_s), check=True
    )


def _apply(
    rootfs: str, plan: RollbackPlan, lock_timeout_s: float, load_pynvml: LoadPynvml
) -> RollbackResult:
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
        keep_replaced(
            rootfs, plan.states[0]["id"], {path: now for path, (now, _saved) in plan.files.items()}
        )
    menus = stale_menus(
        rootfs, {path: saved for path, (_now, saved) in plan.files.items()}, plan.changed
    )
    for path, (_now, saved) in sorted(plan.files.items()):
        if path not in menus:
            _put_file_back(rootfs, path, saved)
    if menus:
        run_command(rootfs, ["update-grub"])
    for folder in plan.folders:
        with contextlib.suppress(OSError):  # not empty: somebody else has a file in it
            os.rmdir(place_of(rootfs, folder))
    # Compared again, because a restored package has the selection of its installation.
    _unhold_first, hold, unhold, _others = _holds(
        rootfs, _saved_selections(rootfs, plan.states), plan.our_holds
    )
    if hold or unhold:
        backend_of(rootfs).set_holds(rootfs, hold, unhold, lock_timeout_s)
    return result._replace(manual=manual + reload_services(plan.reread), menus=menus)


def _folders(plan: RollbackPlan) -> list[str]:
    return [f"{STATES}/{state['id']}" for state in plan.states]


def _due_packages(rootfs: str, plan: RollbackPlan, lock_timeout_s: float) -> list[Any]:
    """Packages that will be restored, as rows. Raises OSError, and ValueError if one cannot be
    restored. Changes nothing."""
    return [
        row
        for folder in _folders(plan)
        for row in restore_packages(rootfs, folder, lock_timeout_s, True, plan.named)
    ]


def _restore_others(
    rootfs: str, plan: RollbackPlan, lock_timeout_s: float, due: Sequence[Any], check: bool
) -> RollbackResult:
    """Restores the boot loader and the packages, which have files of their own in a state's folder.
    due: packages to restore."""
    folders = _folders(plan)
    boot = [row for folder in folders for row in restore_boot(rootfs, folder, check)]
    waits_for = [
        release for release in (reboot_needed(rootfs, folder) for folder in folders) if release
    ]
    if due and waits_for:
        return RollbackResult(boot=boot, packages=due if check else [], waits_for=waits_for[-1])
    packages = (
        due
        if check
        else [
            row
            for folder in folders
            for row in restore_packages(rootfs, folder, lock_timeout_s, False, plan.named)
        ]
    )
    for folder in [] if check else folders:
        # a second time: without the newer kernel the loader's earlier configuration is restored,
        # byte for byte
        restore_boot(rootfs, folder, False)
    return RollbackResult(boot=boot, packages=packages)


def _saved_selections(rootfs: str, states: Iterable[dict[str, Any]]) -> dict[str, str]:
    selections = {}
    for state in states:
        selections.update(read_saved_selections(folder_of(rootfs, state["id"])))
    return selections


def _held_line(name: str) -> str:
    return f"{name}: on hold, and not by unhang; somebody held it since, and it stays on hold"


def _holds(
    rootfs: str, selections: dict[str, str], ours: Sequence[str]
) -> tuple[list[str], list[str], list[str], list[str]]:
    """(unhold first, hold at the end, unhold at the end, on hold by others). selections: {name:
    "install" or "hold"}, as saved; ours: unhang's holds."""
    if not selections:
        return [], [], [], []
    try:
        _manager, database = read_packages(rootfs)
    except NotPossible as problem:
        raise ValueError(str(problem)) from None
    now = {dpkg_name(package): package.held for package in database.packages}
    held = sorted(name for name, was in selections.items() if was != "hold" and now.get(name))
    unhold, others = (
        [name for name in held if name in ours],
        [name for name in held if name not in ours],
    )
    hold = sorted(
        name for name, was in selections.items() if was == "hold" and now.get(name) is False
    )
    return unhold, hold, unhold, others


def _put_file_back(rootfs: str, path: str, saved: Saved | None) -> None:
    place = place_of(rootfs, path)
    if saved is None:
        write_text(place, None)
        return
    write_text(place, saved["text"], saved["mode"])
    os.chmod(place, saved["mode"])
    if os.geteuid() == 0:
        os.chown(place, saved["uid"], saved["gid"])


def stale_menus(
    rootfs: str, files: Mapping[str, Saved | None], changed: Iterable[str] = ()
) -> list[str]:
    """Paths of menus of GRUB to generate again, for a saved text is restored only if its entries
    match the kernels that the node then has: an older one would start a file that no longer exists.
    files: {path: as it was saved}; changed: paths of menus that were generated since. Raises
    OSError."""
    return [
        path
        for path in MENUS
        if path in files and (path in changed or not _starts_what_is_there(rootfs, files[path]))
    ]


def _starts_what_is_there(rootfs: str, saved: Saved | None) -> bool:
    return saved is not None and set(_releases(parse_menu(saved["text"]))) == set(
        installed_releases(rootfs)
    )


def _releases(entries: Sequence[Entry]) -> list[str]:
    """Kernel releases of all entries, including those in submenus."""
    found = [release_of_image(entry.kernel) for entry in entries]
    return [release for release in found if release] + [
        release for entry in entries if entry.children for release in _releases(entry.children)
    ]
