"""What a saved state's role has left on the node: read when the role ends, and again before a
rollback, by the same code. Values that carry such a record with them (packages.json, running.json)
are not in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..atomic_files import STATES, Saved, place_of, read_own_json, read_text_or_none
from ..boot import loader as loaders
from ..boot.entries import GRUB_DROP_IN
from ..config.unit_links import read_links
from ..journal.as_written import Written, is_as_written, why_it_stays
from ..journal.saved_states import (
    folder_of,
    print_of,
    read_saved,
    read_saved_files,
    read_saved_selections,
)
from ..package.held_groups import NotPossible, dpkg_name
from ..package.pin import read_packages
from ..package.saved import read_saved as read_saved_packages
from .boot import NAME as BOOT_FILE
from .boot import SCHEMA as BOOT_SCHEMA

FILES, HOLDS, BOOT, LINKS = "files", "holds", "boot", "links"
ENTRY = "default boot entry"
ROLLBACK = "rollback"  # the step that is recorded before a rollback changes anything
Left = Mapping[str, Mapping[str, Any]]
"""{kind: {name: value}}. files: print_of; holds: [held, version]; boot: [default, saved entry, text
of the drop-in]; links: the target."""


def read_left(rootfs: str, state_id: str) -> Left:
    """The present values of all that the state has saved. Raises OSError, ValueError."""
    folder = folder_of(rootfs, state_id)
    held = read_holds(rootfs, read_saved_selections(folder))
    return {
        FILES: {path: print_of(read_saved(rootfs, path)) for path in read_saved_files(folder)},
        HOLDS: {name: list(value) for name, value in held.items()},
        BOOT: _read_boot(rootfs) if _boot_before(rootfs, state_id) else {},
        LINKS: read_links(rootfs, _units(rootfs, state_id)),
    }


def read_holds(rootfs: str, names: Iterable[str]) -> dict[str, tuple[bool, str]]:
    """{name: (held, version)} of these packages, as far as they are installed. Raises OSError,
    ValueError."""
    wanted = set(names)
    if not wanted:
        return {}
    try:
        _manager, database = read_packages(rootfs)
    except NotPossible as problem:
        raise ValueError(str(problem)) from None
    found = {dpkg_name(one): (one.held, one.version) for one in database.packages}
    return {name: value for name, value in found.items() if name in wanted}


def changed_files(
    rootfs: str, states: Sequence[Mapping[str, Any]], now: Mapping[str, Saved | None]
) -> list[str]:
    """Paths of files that somebody has changed since. states: newest first; now: the present
    files."""
    changes: dict[str, list[Written]] = {}
    for state in states:
        for path, saved in read_saved_files(folder_of(rootfs, state["id"])).items():
            changes.setdefault(path, []).append(_written(state, FILES, path, print_of(saved)))
    return [path for path in now if not is_as_written(print_of(now[path]), changes[path])]


def changed_holds(
    rootfs: str, states: Sequence[Mapping[str, Any]], versions: Mapping[str, Iterable[str | None]]
) -> dict[str, str]:
    """{name: line} of packages that somebody has held, let go or changed since. states: newest
    first; versions: {package: those that unhang itself found or installed}."""
    changes: dict[str, list[Written]] = {}
    known: dict[str, set[str | None]] = {}
    for state in states:
        for name, was in read_saved_selections(folder_of(rootfs, state["id"])).items():
            left = _left(state, HOLDS, name)
            change = _change(state, was == "hold", None if left is None else [left[0]])
            changes.setdefault(name, []).append(change)
            known.setdefault(name, set(versions.get(name.split(":")[0], ()))).update(
                [] if left is None else [left[1]]
            )
    lines = {}
    for name, (held, version) in read_holds(rootfs, changes).items():
        is_known = version in known[name] or not known[name]
        if held != changes[name][-1].before and not (
            is_known and is_as_written(held, changes[name])
        ):
            after = changes[name][0].after
            shown = " or ".join(sorted(filter(None, known[name]))) or "it"
            expected = f"{shown} {_hold(after[0] if after else None)}"
            why = why_it_stays(expected, f"{version} {_hold(held)}")
            lines[name] = f"{name}: {why}"
    return lines


def changed_boot(rootfs: str, states: Sequence[Mapping[str, Any]]) -> str:
    """The line about a default boot entry that somebody has changed since; "" if it may be
    restored."""
    saving = [(state, before) for state in states if (before := _boot_before(rootfs, state["id"]))]
    now = _read_boot(rootfs).get(ENTRY) if saving else None
    changes = [_written(state, BOOT, ENTRY, before) for state, before in saving]
    # between its two halves a rollback sets an entry of its own
    is_begun = any(step["name"] == ROLLBACK for state, _ in saving for step in state["steps"])
    if now is None or is_begun or is_as_written(now, changes):
        return ""
    left = _left(saving[0][0], BOOT, ENTRY)
    expected = left[1] or left[0] if left else "another"
    return f"{ENTRY}: {why_it_stays(expected, now[1] or now[0])}"


def has_boot(rootfs: str, state_id: str) -> bool:
    """Whether the state has saved the default boot entry. Raises OSError, ValueError."""
    return _boot_before(rootfs, state_id) is not None


def _hold(held: bool | None) -> str:
    return "on hold" if held else "not on hold"


def _written(state: Mapping[str, Any], kind: str, name: str, before: Any) -> Written:
    left = state.get("left") or {}
    return _change(state, before, [left[kind][name]] if name in left.get(kind, ()) else None)


def _change(state: Mapping[str, Any], before: Any, after: list[Any] | None) -> Written:
    """An interrupted rollback may have restored the value already."""
    is_begun = any(step["name"] == ROLLBACK for step in state["steps"])
    return Written(before, after if after is None or not is_begun else [*after, before])


def _left(state: Mapping[str, Any], kind: str, name: str) -> Any:
    return ((state.get("left") or {}).get(kind) or {}).get(name)


def _boot_before(rootfs: str, state_id: str) -> list[Any] | None:
    saved = read_own_json(rootfs, f"{STATES}/{state_id}/{BOOT_FILE}", BOOT_SCHEMA)
    return [saved["default"], saved["saved"], saved["drop_in"]] if saved else None


def _read_boot(rootfs: str) -> dict[str, Any]:
    """{} where the boot loader cannot be read, so that nothing is known of who set it."""
    try:
        loader = loaders.read_loader(rootfs)
    except (loaders.NotPossible, OSError):
        return {}
    drop_in = read_text_or_none(place_of(rootfs, GRUB_DROP_IN))
    return {ENTRY: [loader.default, loader.saved, drop_in]}


def _units(rootfs: str, state_id: str) -> set[str]:
    saved = read_saved_packages(rootfs, f"{STATES}/{state_id}") or {}
    return {unit for row in saved.get("packages", ()) for unit in row.get("units") or ()}
