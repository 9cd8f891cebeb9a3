"""Saved states: the data for a rollback, written to /var/lib/unhang/states/<id>/ on the node before
a change.

state.json has the role, the run and the steps; files.json each file as it was; selections.json the
packages' selections in dpkg. The modules that change packages, boot entries and values of the
running system write files of their own there. A state is written before the change that it undoes,
so it may list changes that were never made.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat as stat_bits
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...base.parse.values import parse_json
from ..atomic_files import STATES, Saved, place_of, read_text_or_none, write_text
from .node_lock import read_boot_id, read_lock, stay_at_work, utc_text

SCHEMA = "unhang/saved-state/1"
RUNNING_FILE = "running.json"
REMOVED = ".removed-"
FIELDS = {
    "number": int,
    "role": str,
    "run": str,
    "begun": str,
    "status": str,
    "steps": list,
    "folders": list,
}
REPAIR = (
    "put it back from a copy, or move {0}/{1} away, after which what it saved cannot be rolled"
    " back; until then no role begins and nothing is rolled back"
)
REFUSING = frozenset(("packages", "hold"))  # steps whose modules save before they change
OWN_FILES = frozenset(("state.json", "files.json", "selections.json"))
_ID = re.compile(r"^\d{8}T\d{6}Z-[a-z][a-z0-9_]*(-\d+)?$")
_ROLE = re.compile(r"^[a-z][a-z0-9_]*$")


def folder_of(rootfs: str, state_id: str) -> str:
    """Path of a state's folder on this machine. Raises ValueError for an invalid or unknown id."""
    folder = place_of(rootfs, f"{STATES}/{state_id}") if _ID.match(state_id) else None
    if folder is None or not os.path.isfile(folder + "/state.json"):
        raise ValueError(
            f"{state_id!r} is not the id of a saved state in {STATES}; list them with saved_state:"
            " {state: listed}"
        )
    return folder


def read_state_of(rootfs: str, state_id: str) -> dict[str, Any]:
    """state.json of one state. Raises OSError, ValueError."""
    place = folder_of(rootfs, state_id) + "/state.json"
    state = _read_json(place, SCHEMA)
    if state.get("id") != state_id or not all(
        isinstance(state.get(name), kind) for name, kind in FIELDS.items()
    ):
        raise _not_ours(place)
    return state


def read_states(rootfs: str) -> list[dict[str, Any]]:
    """All states, oldest first, then the broken ones: a state that cannot be read has the status
    broken. Raises OSError."""
    try:
        names = sorted(os.listdir(place_of(rootfs, STATES)))
    except FileNotFoundError:
        return []
    states = []
    for name in names:
        if not _ID.match(name) or not os.path.isfile(
            place_of(rootfs, f"{STATES}/{name}/state.json")
        ):
            continue  # the state was interrupted at its beginning, before any change
        try:
            states.append(read_state_of(rootfs, name))
        except ValueError as problem:
            states.append(
                {
                    "id": name,
                    "status": "broken",
                    "message": f"{problem}; {REPAIR.format(STATES, name)}",
                    "number": 0,
                    "steps": [],
                }
            )
    # The time of a broken state is unknown, so it blocks all others.
    return sorted(
        states, key=lambda state: (state["status"] == "broken", state["number"], state["id"])
    )


def begin_state(
    rootfs: str, role: str, run: str, files: Iterable[str] = ()
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """(state, the step at which an earlier run stopped, or None): a new state, or the newest one if
    it belongs to this role and was not closed. An open state is continued, because it has the
    original values. Raises OSError, ValueError."""
    if not _ROLE.match(role):
        raise ValueError(f"{role!r} is not a role's name such as gpu_driver")
    states = read_states(rootfs)
    refuse_broken(states)
    stopped = unfinished_of(states, role)
    if stopped:
        state = read_state_of(rootfs, stopped["id"])
        fresh = {"status": "open", "run": run, "message": None, "left": None}
        _write_state(rootfs, dict(state, **fresh, boot_id=read_boot_id(rootfs)))
        keep_files(rootfs, state["id"], files)
        return read_state_of(rootfs, state["id"]), stopped
    state = _new_state(rootfs, role, run)
    try:
        keep_files(rootfs, state["id"], files)
    except BaseException:
        remove_state(rootfs, state["id"])
        raise
    return read_state_of(rootfs, state["id"]), None


def refuse_broken(states: Iterable[dict[str, Any]]) -> None:
    """Raises ValueError if a saved state cannot be read: changes after it could not be rolled back.
    Pure."""
    broken = [state["message"] for state in states if state["status"] == "broken"]
    if broken:
        raise ValueError("; ".join(broken))


def unfinished_of(states: list[dict[str, Any]], role: str) -> dict[str, Any] | None:
    """The step at which the newest state stopped, if it is open and belongs to this role; else
    None. An older open state is not continued, because newer states depend on it. No I/O."""
    standing = [state for state in states if state["status"] not in ("rolled_back", "broken")]
    if (
        not standing
        or standing[-1]["role"] != role
        or standing[-1]["status"] not in ("open", "failed")
    ):
        return None
    state = standing[-1]
    last = state["steps"][-1] if state["steps"] else {"name": "begin", "at": state["begun"]}
    return {
        "id": state["id"],
        "run": state["run"],
        "status": state["status"],
        "step": last["name"],
        "at": last["at"],
        "message": state.get("message"),
    }


def state_line(state: dict[str, Any]) -> str:
    """A state as one line for people. No I/O."""
    if state["status"] == "broken":
        return f"{state['id']}: broken: {state['message']}"
    step = f", last step {state['steps'][-1]['name']}" if state["steps"] else ""
    step += f", rolled back by run {by}" if (by := state.get("rolled_back_by")) else ""
    message = f": {state['message']}" if state.get("message") else ""
    return (
        f"{state['id']}: {state['status']}, begun {state['begun']} by run"
        f" {state['run']}{step}{message}"
    )


def add_step(rootfs: str, state_id: str, step: str) -> None:
    """Records a step before it is done."""
    state = read_state_of(rootfs, state_id)
    _write_state(
        rootfs, dict(state, steps=state["steps"] + [{"name": step, "at": utc_text(time.time())}])
    )


def finish_state(
    rootfs: str, state_id: str, left: Mapping[str, Any], look_at: Sequence[str] = ()
) -> bool:
    """True if the state is kept. A state without changes is removed, because there is nothing to
    undo; a failed state stays failed. left: what the role leaves (rollback/left_values.py);
    look_at: lines for a person."""
    state = read_state_of(rootfs, state_id)
    if state["status"] != "open":
        return True
    if _is_without_change(rootfs, state_id):
        remove_state(rootfs, state_id)
        return False
    _write_state(rootfs, dict(state, status="finished", left=left, look_at=list(look_at)))
    return True


def fail_state(rootfs: str, state_id: str, message: str, left: Mapping[str, Any]) -> bool:
    """Marks the state of a failed role. True if it is kept, to be rolled back or continued; a state
    without changes, as after a refusal, is removed: then the role has changed nothing. One with a
    step that may change what no file shows, such as a reset, is kept. left: as for finish_state."""
    state = read_state_of(rootfs, state_id)
    steps = {one["name"] for one in state["steps"]}
    if steps <= REFUSING and _is_without_change(rootfs, state_id):
        remove_state(rootfs, state_id)
        return False
    _write_state(rootfs, dict(state, status="failed", message=message, left=left))
    return True


def _is_without_change(rootfs: str, state_id: str) -> bool:
    folder = folder_of(rootfs, state_id)
    if not set(os.listdir(folder)) <= OWN_FILES or read_saved_selections(folder):
        return False
    return all(read_saved(rootfs, path) == was for path, was in read_saved_files(folder).items())


def mark_rolled_back(rootfs: str, state_id: str) -> None:
    """Marks a state after its complete rollback, with the run that has the node."""
    lock = read_lock(rootfs)
    done = {"status": "rolled_back", "message": None, "rolled_back_by": lock and lock["run"]}
    _write_state(rootfs, dict(read_state_of(rootfs, state_id), **done))


def fail_state_as_it_is(rootfs: str, state_id: str, message: str) -> None:
    """Marks a state whose rollback failed: the rollback, or the role, can be run again."""
    _write_state(rootfs, dict(read_state_of(rootfs, state_id), status="failed", message=message))


def keep_replaced(rootfs: str, state_id: str, files: Mapping[str, Saved | None]) -> None:
    """Saves the files that a rollback is about to overwrite, {path: result of read_saved}, for a
    person; the first saved content of a file stays."""
    place = folder_of(rootfs, state_id) + "/replaced.json"
    _write_json(place, dict(files, **(_read_json(place) if os.path.exists(place) else {})))


def remove_state(rootfs: str, state_id: str) -> None:
    """Renames the folder, then removes it: what remains after a power cut is not a state, and is
    removed with the next state."""
    folder = folder_of(rootfs, state_id)
    os.rename(folder, os.path.join(os.path.dirname(folder), REMOVED + state_id))
    sweep_removed(rootfs)


def sweep_removed(rootfs: str) -> None:
    """Completes interrupted removals of states."""
    parent = place_of(rootfs, STATES)
    for name in [name for name in os.listdir(parent) if name.startswith(REMOVED)]:
        shutil.rmtree(os.path.join(parent, name))


def keep_files(rootfs: str, state_id: str, paths: Iterable[str]) -> None:
    """Saves the present content of these files; one that is already saved stays, because it is the
    original one. Does nothing with an empty id (check mode, or no state wanted). From this call on
    no other run takes the node until this process has ended."""
    paths = list(paths)
    if not state_id or not paths:
        return
    folder = folder_of(rootfs, state_id)
    stay_at_work(folder)
    saved = read_saved_files(folder)
    new = {path: read_saved(rootfs, path) for path in paths if path not in saved}
    if not new:
        return
    folders = sorted({missing for path in new for missing in _missing_folders(rootfs, path)})
    # written before files.json: a folder counts only if one of its files is listed there
    if folders:
        state = read_state_of(rootfs, state_id)
        _write_state(rootfs, dict(state, folders=sorted(set(state["folders"]) | set(folders))))
    _write_json(folder + "/files.json", dict(saved, **new))


def keep_selections(rootfs: str, state_id: str, selections: dict[str, str]) -> None:
    """Saves dpkg's selections of packages, {name: "install" or "hold"}, each once."""
    if state_id and selections:
        folder = folder_of(rootfs, state_id)
        _write_json(folder + "/selections.json", dict(selections, **read_saved_selections(folder)))


def read_saved_files(folder: str) -> dict[str, Saved | None]:
    """{path: {text, mode, uid, gid}, or None if there was no file}."""
    return _read_json(folder + "/files.json") if os.path.exists(folder + "/files.json") else {}


def read_saved_selections(folder: str) -> dict[str, str]:
    """{package name: "install" or "hold"}."""
    return (
        _read_json(folder + "/selections.json")
        if os.path.exists(folder + "/selections.json")
        else {}
    )


def read_saved(rootfs: str, path: str) -> Saved | None:
    """A file in the form of files.json, None if it does not exist. Raises OSError, and ValueError
    for anything but a regular file of at most 1 MiB."""
    place = place_of(rootfs, path)
    text = read_text_or_none(place)
    if text is None:
        return None
    known = os.stat(place)
    return {
        "text": text,
        "mode": stat_bits.S_IMODE(known.st_mode),
        "uid": known.st_uid,
        "gid": known.st_gid,
    }


def print_of(saved: Saved | None) -> str | None:
    """What tells two contents of a file apart: checksum, mode, owner; None for no file."""
    if saved is None:
        return None
    checksum = hashlib.sha256(saved["text"].encode("utf-8", "surrogateescape")).hexdigest()
    return f"{checksum} {saved['mode']:04o} {saved['uid']}:{saved['gid']}"


def _new_state(rootfs: str, role: str, run: str) -> dict[str, Any]:
    now, parent = time.time(), place_of(rootfs, STATES)
    os.makedirs(parent, mode=0o700, exist_ok=True)
    stem = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}-{role}"
    for state_id in [stem] + [f"{stem}-{count}" for count in range(2, 1000)]:
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{parent}/{state_id}", 0o700)
            break
    state = {
        "schema": SCHEMA, "id": state_id,
        "number": 1 + max([state["number"] for state in read_states(rootfs)] + [0]), "role": role,
        "run": run,
        "begun": utc_text(now), "status": "open", "steps": [], "folders": [],
        "boot_id": read_boot_id(rootfs), "message": None,
    }  # fmt: skip
    _write_state(rootfs, state)
    return state


def _missing_folders(rootfs: str, path: str) -> list[str]:
    missing, folder = [], os.path.dirname(path)
    while folder not in ("", "/") and not os.path.isdir(place_of(rootfs, folder)):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def _write_state(rootfs: str, state: dict[str, Any]) -> None:
    _write_json(place_of(rootfs, f"{STATES}/{state['id']}/state.json"), state)


def _write_json(place: str, value: Mapping[str, Any]) -> None:
    write_text(place, json.dumps(value, indent=1, sort_keys=True) + "\n", 0o600)


def _read_json(place: str, schema: str | None = None) -> dict[str, Any]:
    try:
        # the limit is higher than that of a saved file, because this file contains several
        with open(place, encoding="utf-8") as source:
            value = parse_json(source.read())
    except ValueError:
        value = None
    if not isinstance(value, dict) or (schema and value.get("schema") != schema):
        raise _not_ours(place)
    return value


def _not_ours(place: str) -> ValueError:
    return ValueError(f"{place} does not hold what unhang saved there")
