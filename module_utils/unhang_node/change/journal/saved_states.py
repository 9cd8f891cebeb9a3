"""Saved states: what a rollback needs, saved on the node before a change in /var/lib/unhang/states/<id>/.

state.json says who, when and how far; files.json holds each file as it was; selections.json the packages' selections in dpkg. Packages, boot entries
and values of the running system have files of their own there, written by those who change them. A state is written before the change that it undoes, so it
may name more than was done.
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
from collections.abc import Iterable, Mapping
from typing import Any

from ..files import STATES, Saved, place_of, read_text_or_none, write_text
from .node_lock import read_boot_id, stay_at_work, utc_text

SCHEMA = "unhang/saved-state/1"
RUNNING_FILE = "running.json"
REMOVED = ".removed-"
FIELDS = {"number": int, "role": str, "run": str, "begun": str, "status": str, "steps": list, "folders": list}
REPAIR = "put it back from a copy, or move {0}/{1} away, after which what it saved cannot be rolled back; until then no role begins and nothing is rolled back"
OWN_FILES = frozenset(("state.json", "files.json", "selections.json"))
_ID = re.compile(r"^\d{8}T\d{6}Z-[a-z][a-z0-9_]*(-\d+)?$")
_ROLE = re.compile(r"^[a-z][a-z0-9_]*$")


def folder_of(rootfs: str, state_id: str) -> str:
    """Where a state lies on this machine. Raises ValueError for what is no id or has no state."""
    folder = place_of(rootfs, f"{STATES}/{state_id}") if _ID.match(state_id) else None
    if folder is None or not os.path.isfile(folder + "/state.json"):
        raise ValueError(f"expected the id of a saved state in {STATES}, found {state_id!r}; list them with saved_state: {{state: listed}}")
    return folder


def read_state_of(rootfs: str, state_id: str) -> dict[str, Any]:
    """state.json of one state. Raises OSError, ValueError."""
    place = folder_of(rootfs, state_id) + "/state.json"
    state = _read_json(place, SCHEMA)
    if state.get("id") != state_id or not all(isinstance(state.get(name), kind) for name, kind in FIELDS.items()):
        raise _not_ours(place)
    return state


def read_states(rootfs: str) -> list[dict[str, Any]]:
    """All states, oldest first, broken ones last; one that cannot be read has status broken. Raises OSError."""
    try:
        names = sorted(os.listdir(place_of(rootfs, STATES)))
    except FileNotFoundError:
        return []
    states = []
    for name in names:
        if not _ID.match(name) or not os.path.isfile(place_of(rootfs, f"{STATES}/{name}/state.json")):
            continue  # begun, and cut off before anything was changed
        try:
            states.append(read_state_of(rootfs, name))
        except ValueError as problem:
            states.append({"id": name, "status": "broken", "message": f"{problem}; {REPAIR.format(STATES, name)}", "number": 0, "steps": []})
    # Nobody knows when a broken one was begun: it stands in the way of all others.
    return sorted(states, key=lambda state: (state["status"] == "broken", state["number"], state["id"]))


def begin_state(rootfs: str, role: str, run: str, files: Iterable[str] = ()) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """(state, where an earlier run had stopped or None): a new state, or the newest one where it is this role's and was not closed.

    What that one saved first is what was there before, so it is gone on with. Raises OSError, ValueError.
    """
    if not _ROLE.match(role):
        raise ValueError(f"expected a role's name such as gpu_driver, found {role!r}")
    states = read_states(rootfs)
    refuse_broken(states)
    stopped = unfinished_of(states, role)
    if stopped:
        state = read_state_of(rootfs, stopped["id"])
        _write_state(rootfs, dict(state, status="open", run=run, boot_id=read_boot_id(rootfs), message=None))
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
    """Raises ValueError where a saved state cannot be read: what is changed after it could not be rolled back. Pure."""
    broken = [state["message"] for state in states if state["status"] == "broken"]
    if broken:
        raise ValueError("; ".join(broken))


def unfinished_of(states: list[dict[str, Any]], role: str) -> dict[str, Any] | None:
    """Where the newest state stopped, when it is this role's and was not closed; else None: a newer state stands on what an older one left. Pure."""
    standing = [state for state in states if state["status"] not in ("rolled_back", "broken")]
    if not standing or standing[-1]["role"] != role or standing[-1]["status"] not in ("open", "failed"):
        return None
    state = standing[-1]
    last = state["steps"][-1] if state["steps"] else {"name": "begin", "at": state["begun"]}
    return {"id": state["id"], "run": state["run"], "status": state["status"], "step": last["name"], "at": last["at"], "message": state.get("message")}


def state_line(state: dict[str, Any]) -> str:
    """A state in one line, for a person. Pure."""
    if state["status"] == "broken":
        return "{}: broken: {}".format(state["id"], state["message"])
    step = ", last step {}".format(state["steps"][-1]["name"]) if state["steps"] else ""
    message = ": {}".format(state["message"]) if state.get("message") else ""
    return "{}: {}, begun {} by run {}{}{}".format(state["id"], state["status"], state["begun"], state["run"], step, message)


def add_step(rootfs: str, state_id: str, step: str) -> None:
    """Records a step before it is done."""
    state = read_state_of(rootfs, state_id)
    _write_state(rootfs, dict(state, steps=state["steps"] + [{"name": step, "at": utc_text(time.time())}]))


def finish_state(rootfs: str, state_id: str) -> bool:
    """True when the state stands; one in which nothing was changed is removed, for there is nothing to undo. One that failed stays as it is."""
    state = read_state_of(rootfs, state_id)
    if state["status"] != "open":
        return True
    if _is_without_change(rootfs, state_id):
        remove_state(rootfs, state_id)
        return False
    after = {path: _sum_of(read_saved(rootfs, path)) for path in read_saved_files(folder_of(rootfs, state_id))}
    _write_state(rootfs, dict(state, status="finished", after=after))
    return True


def fail_state(rootfs: str, state_id: str, message: str) -> bool:
    """The role failed. True when the state is kept, to be rolled back or continued; one in which nothing was changed, as after a refusal, is removed."""
    if _is_without_change(rootfs, state_id):
        remove_state(rootfs, state_id)
        return False
    _write_state(rootfs, dict(read_state_of(rootfs, state_id), status="failed", message=message))
    return True


def _is_without_change(rootfs: str, state_id: str) -> bool:
    folder = folder_of(rootfs, state_id)
    if not set(os.listdir(folder)) <= OWN_FILES or read_saved_selections(folder):
        return False
    return all(read_saved(rootfs, path) == was for path, was in read_saved_files(folder).items())


def mark_rolled_back(rootfs: str, state_id: str) -> None:
    """Marks a state after its complete rollback."""
    _write_state(rootfs, dict(read_state_of(rootfs, state_id), status="rolled_back", message=None))


def fail_state_as_it_is(rootfs: str, state_id: str, message: str) -> None:
    """Records that a rollback of it failed: rollback and role can be run again."""
    _write_state(rootfs, dict(read_state_of(rootfs, state_id), status="failed", message=message))


def keep_replaced(rootfs: str, state_id: str, files: Mapping[str, Saved | None]) -> None:
    """Saves what a rollback is about to write over, {path: as read_saved has it}, for a person; what was replaced first stays."""
    place = folder_of(rootfs, state_id) + "/replaced.json"
    _write_json(place, dict(files, **(_read_json(place) if os.path.exists(place) else {})))


def remove_state(rootfs: str, state_id: str) -> None:
    """Takes the whole folder away, under another name first: what is left by a power cut is no state any more, and goes with the next one that is removed."""
    folder = folder_of(rootfs, state_id)
    os.rename(folder, os.path.join(os.path.dirname(folder), REMOVED + state_id))
    sweep_removed(rootfs)


def sweep_removed(rootfs: str) -> None:
    """Removes the rest of states whose removal was interrupted."""
    parent = place_of(rootfs, STATES)
    for name in [name for name in os.listdir(parent) if name.startswith(REMOVED)]:
        shutil.rmtree(os.path.join(parent, name))


def keep_files(rootfs: str, state_id: str, paths: Iterable[str]) -> None:
    """Saves these files as they are, each once: what was saved first is what was there before. Nothing with an empty id (check mode, or no state wanted).

    Who calls it is about to change them: no other run takes the node until this process has ended.
    """
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
    if folders:  # first, for they count only when the file is known
        state = read_state_of(rootfs, state_id)
        _write_state(rootfs, dict(state, folders=sorted(set(state["folders"]) | set(folders))))
    _write_json(folder + "/files.json", dict(saved, **new))


def keep_selections(rootfs: str, state_id: str, selections: dict[str, str]) -> None:
    """Saves dpkg's selections of packages, {name: "install" or "hold"}, each once."""
    if state_id and selections:
        folder = folder_of(rootfs, state_id)
        _write_json(folder + "/selections.json", dict(selections, **read_saved_selections(folder)))


def read_saved_files(folder: str) -> dict[str, Saved | None]:
    """{path: {text, mode, uid, gid} or None when there was no file}."""
    return _read_json(folder + "/files.json") if os.path.exists(folder + "/files.json") else {}


def read_saved_selections(folder: str) -> dict[str, str]:
    """{package name: "install" or "hold"}."""
    return _read_json(folder + "/selections.json") if os.path.exists(folder + "/selections.json") else {}


def read_saved(rootfs: str, path: str) -> Saved | None:
    """A file as files.json has it, None when there is none. Raises OSError, ValueError for what is no regular file of 1 MiB at most."""
    place = place_of(rootfs, path)
    text = read_text_or_none(place)
    if text is None:
        return None
    known = os.stat(place)
    return {"text": text, "mode": stat_bits.S_IMODE(known.st_mode), "uid": known.st_uid, "gid": known.st_gid}


def is_unchanged(rootfs: str, path: str, state: dict[str, Any]) -> bool:
    """False when somebody changed the file after the role had finished; True when not, or when it cannot be known."""
    after = state.get("after")
    return after is None or path not in after or after[path] == _sum_of(read_saved(rootfs, path))


def _new_state(rootfs: str, role: str, run: str) -> dict[str, Any]:
    now, parent = time.time(), place_of(rootfs, STATES)
    os.makedirs(parent, mode=0o700, exist_ok=True)
    stem = "{}-{}".format(time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now)), role)
    for state_id in [stem] + [f"{stem}-{count}" for count in range(2, 1000)]:
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{parent}/{state_id}", 0o700)
            break
    state = {
        "schema": SCHEMA, "id": state_id, "number": 1 + max([state["number"] for state in read_states(rootfs)] + [0]), "role": role, "run": run,
        "begun": utc_text(now), "status": "open", "steps": [], "folders": [], "boot_id": read_boot_id(rootfs), "message": None,
    }  # fmt: skip
    _write_state(rootfs, state)
    return state


def _missing_folders(rootfs: str, path: str) -> list[str]:
    missing, folder = [], os.path.dirname(path)
    while folder not in ("", "/") and not os.path.isdir(place_of(rootfs, folder)):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def _sum_of(saved: Saved | None) -> str | None:
    return None if saved is None else hashlib.sha256(saved["text"].encode("utf-8", "surrogateescape")).hexdigest()


def _write_state(rootfs: str, state: dict[str, Any]) -> None:
    _write_json(place_of(rootfs, "{}/{}/state.json".format(STATES, state["id"])), state)


def _write_json(place: str, value: Mapping[str, Any]) -> None:
    write_text(place, json.dumps(value, indent=1, sort_keys=True) + "\n", 0o600)


def _read_json(place: str, schema: str | None = None) -> dict[str, Any]:
    try:
        with open(place, encoding="utf-8") as source:  # may be longer than any file that is saved in it
            value = json.load(source)
    except ValueError:
        value = None
    if not isinstance(value, dict) or (schema and value.get("schema") != schema):
        raise _not_ours(place)
    return value


def _not_ours(place: str) -> ValueError:
    return ValueError(f"{place}: expected what unhang saved there, found something else")
