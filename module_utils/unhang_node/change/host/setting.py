"""Sets one thing of a host: unhang's files, others' lines that contradict them, and values of the
running system. What it takes is planned by kernel_parameter, kernel_module, shm_size and
apply_limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..atomic_files import read_state, state_path, write_state
from ..config.own_files import FilePlan, module_result, write_files, write_plan
from ..journal.running_values import Change, forget_running, keep_running
from ..journal.saved_states import keep_files
from .limit_values import systemd_pair


class Setting(NamedTuple):
    """What a setting changes on a node."""

    owner: str  # name of the saved state of others' lines and of the original value
    plan: FilePlan
    changes: Sequence[Change] = ()  # values of the running system
    # sets one of these values by its name; returns a line for a person if it has to stay
    write: Callable[[str, Any], str | None] = lambda _name, _value: None
    keeps_original: bool = False  # whether an absent setting gives the running value back


def same(one: object, other: object) -> bool:
    """True if both are spellings of one value: the kernel prints tabs and accepts any blanks."""
    return str(one).split() == str(other).split()


def original_value(rootfs: str, owner: str, now: object) -> Any:
    """The running value before unhang changed it; None if it is not known, or somebody else has
    changed it since."""
    saved = read_state(rootfs, owner)
    return saved.get("running") if "set" in saved and same(saved["set"], now) else None


def apply_setting(rootfs: str, state_id: str, setting: Setting, absent: bool) -> Setting:
    """Makes the changes, and returns them without the values that have to stay. If another value
    cannot be set, it would fail at every boot, so the files are restored. Raises OSError,
    ValueError."""
    owner, plan, changes = setting.owner, setting.plan, setting.changes
    saved = read_state(rootfs, owner)
    keep_running(rootfs, state_id, changes)
    if setting.keeps_original and changes and not absent:
        keep_files(rootfs, state_id, [state_path(owner)])
        first = {"running": changes[0].value, **saved}
        write_state(rootfs, owner, {**first, "set": changes[0].wanted})
    write_plan(rootfs, owner, plan, absent, state_id)
    done, manual = [], list(plan.manual)
    for change in changes:
        try:
            why = setting.write(change.name, change.wanted)
        except (OSError, ValueError):
            write_files(rootfs, {path: (new, old) for path, (old, new) in plan.texts.items()})
            write_state(rootfs, owner, saved)
            raise
        if why:
            manual.append(why)
            forget_running(rootfs, state_id, [change])
        else:
            done.append(change)
    return setting._replace(plan=plan._replace(manual=manual), changes=done)


def result_of(setting: Setting) -> dict[str, Any]:
    """A module's result."""
    return module_result(
        setting.plan,
        [
            (change.name, shown_value(change.value), shown_value(change.wanted))
            for change in setting.changes
        ],
    )


def shown_value(value: Any) -> Any:
    """A value for people: a limit is [soft, hard]."""
    return systemd_pair(*value) if isinstance(value, list) else value
