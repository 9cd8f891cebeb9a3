"""Restores saved states, newest first, as far as everything is still as unhang wrote it.

Order: wait for the package manager, refuse what cannot be restored (nothing is changed yet),
unhold, values of the running system that fit what is installed, boot entry, packages, files, holds.
Each step compares with the saved state, so an interrupted rollback can start again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ...base.parse.grub import Entry, parse_menu, release_of_image
from ..atomic_files import STATES, Saved, place_of, write_text
from ..boot.kernels import installed_releases
from ..boot.loader import run_command
from ..boot.parameters import MENUS
from ..journal.as_written import why_it_stays
from ..journal.node_lock import stay_at_work
from ..journal.saved_states import (
    add_step,
    fail_state_as_it_is,
    folder_of,
    keep_replaced,
    mark_rolled_back,
    read_saved,
    read_saved_files,
    read_saved_selections,
    read_states,
)
from ..package.managers import backend_of
from ..package.restore import changed_since, known_here, restore_packages, wait_until_free
from .boot import reboot_needed, restore_boot
from .chosen_states import NotTouched, standing, states_of_run, states_to_roll_back
from .left_values import ROLLBACK, changed_boot, changed_files, changed_holds, read_holds
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
    unhold: Sequence[str] = ()  # names in dpkg's notation
    hold: Sequence[str] = ()
    kept_holds: Sequence[str] = ()  # of packages that somebody has held, let go or changed since
    keeps_boot: bool = False  # somebody has set another default boot entry since
    left: Sequence[dict[str, Any]] = ()  # states that are not rolled back
    known: bool = False  # the node has states of the run, restored or not
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
    rootfs: str,
    state_id: str,
    load_pynvml: LoadPynvml = no_pynvml,
    named: Sequence[str] = (),
    run: str = "",
    through: bool = False,
) -> RollbackPlan:
    """RollbackPlan of a state and all later ones, or of a run's states. Changes nothing.
    load_pynvml: () -> nvidia-ml-py, for modes of GPUs; run: instead of state_id; through: and all
    states after them. Raises OSError, ValueError."""
    states = read_states(rootfs)
    chosen = (
        states_of_run(rootfs, states, run, through)
        if run
        else states_to_roll_back(states, state_id)
    )
    now, files = _plan_files(rootfs, chosen)
    changed = changed_files(rootfs, chosen, now)
    versions = known_here(rootfs)
    stays = changed_holds(rootfs, chosen, versions)
    hold, unhold = _holds(rootfs, chosen, stays)
    running, others = plan_running(rootfs, [state["id"] for state in chosen], load_pynvml)
    boot = changed_boot(rootfs, chosen)
    packages = changed_since(rootfs, [f"{STATES}/{state['id']}" for state in chosen], named)
    return RollbackPlan(
        states=chosen,
        files={path: row for path, row in files.items() if path in MENUS or path not in changed},
        folders=sorted({folder for state in chosen for folder in state["folders"]}, reverse=True),
        hold=hold,
        unhold=unhold,
        kept_holds=list(stays),
        keeps_boot=bool(boot),
        left=[state for state in standing(states) if state not in chosen],
        known=not run or any(state.get("run") == run for state in states),
        manual=[
            *(_changed_line(path, now[path], chosen) for path in changed if path not in MENUS),
            *others,
            *packages,
            *stays.values(),
            *([boot] if boot else []),
        ],
        running=running,
        reread=rows_of_rereaders(rootfs, files),
        named=tuple(named),
        changed=changed,
    )


def _plan_files(
    rootfs: str, chosen: Sequence[dict[str, Any]]
) -> tuple[dict[str, Saved | None], dict[str, tuple[Saved | None, Saved | None]]]:
    """({path: now} of all saved files, {path: (now, as it was saved)} of those that differ).
    chosen: newest first."""
    saved: dict[str, Saved | None] = {}
    for state in chosen:  # the oldest state has the original value
        saved.update(read_saved_files(folder_of(rootfs, state["id"])))
    now = {path: read_saved(rootfs, path) for path in sorted(saved)}
    return now, {path: (now[path], saved[path]) for path in now if now[path] != saved[path]}


def _changed_line(path: str, now: Saved | None, chosen: Sequence[dict[str, Any]]) -> str:
    why = why_it_stays("it", "changed" if now else "gone")
    return f"{path}: {why}; as it was before: {STATES}/{chosen[-1]['id']}/files.json"


def apply_restore(
    rootfs: str, plan: RollbackPlan, lock_timeout_s: float, load_pynvml: LoadPynvml = no_pynvml
) -> RollbackResult:
    """RollbackResult. Raises OSError, ValueError, Locked; the states then record that it was begun,
    and it can be repeated. If the result has waits_for, only the boot entry was restored: the same
    call restores the rest once that kernel runs."""
    for state in plan.states:
        stay_at_work(folder_of(rootfs, state["id"]))
        add_step(rootfs, state["id"], ROLLBACK)
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
    try:
        due = _due_packages(rootfs, plan, lock_timeout_s)
    except ValueError as problem:
        raise NotTouched(str(problem)) from problem
    if due or plan.unhold or plan.hold:
        wait_until_free(rootfs, lock_timeout_s)
    if plan.unhold:
        backend_of(rootfs).set_holds(rootfs, [], plan.unhold, lock_timeout_s)
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
    hold, unhold = _holds(rootfs, plan.states, plan.kept_holds)
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
    booted = [] if plan.keeps_boot else folders
    boot = [row for folder in booted for row in restore_boot(rootfs, folder, check)]
    waits_for = [
        release for release in (reboot_needed(rootfs, folder) for folder in folders) if release
    ]
    if due and waits_for and plan.keeps_boot:
        raise ValueError(
            "the default boot entry is not as unhang left it, for somebody has set another:"
            f" {waits_for[-1]} cannot be booted, and until then no package goes; nothing was"
            " touched"
        )
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
    for folder in [] if check else booted:
        # a second time: without the newer kernel the loader's earlier configuration is restored,
        # byte for byte
        restore_boot(rootfs, folder, False)
    return RollbackResult(boot=boot, packages=packages)


def _holds(
    rootfs: str, states: Iterable[dict[str, Any]], stays: Container[str]
) -> tuple[list[str], list[str]]:
    """(names to hold, names to let go) so that the holds are as they were saved. states: newest
    first; stays: names that stay as they are."""
    saved: dict[str, str] = {}
    for state in states:
        saved.update(read_saved_selections(folder_of(rootfs, state["id"])))
    wrong = {
        name: saved[name] == "hold"
        for name, (held, _version) in sorted(read_holds(rootfs, saved).items())
        if name not in stays and held != (saved[name] == "hold")
    }
    return (
        [name for name, wanted in wrong.items() if wanted],
        [name for name, wanted in wrong.items() if not wanted],
    )


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
