"""Saves values of the running system before a module changes them: running.json in a saved state,
which exists only if a value was changed.

Each record has the original value (value) and all values that unhang set (set). If the current
value is none of these, somebody else has changed it since.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ..atomic_files import STATES, read_own_json, write_text
from .as_written import Written, is_as_written
from .node_lock import read_boot_id, stay_at_work
from .saved_states import RUNNING_FILE, folder_of

SCHEMA = "unhang/running/1"
GPU_MODES = ("compute_mode", "persistence")  # kinds of values that a reboot resets


class Change(NamedTuple):
    """A value of the running system that a module is about to change. Values are JSON values."""

    kind: str  # one of running_values.KINDS
    name: str  # which value of this kind
    value: Any  # the present value
    wanted: Any  # the new value


def keep_running(rootfs: str, state_id: str, changes: Sequence[Change]) -> None:
    """Saves the values before these changes; a value that is already saved stays, because it is the
    original one. Does nothing with an empty id (check mode, or no state wanted). From this call on
    no other run takes the node until this process has ended. Raises OSError, ValueError."""
    if not state_id or not changes:
        return
    folder = folder_of(rootfs, state_id)
    stay_at_work(folder)
    boot_id = read_boot_id(rootfs)
    records = {
        (record["kind"], record["name"]): record for record in read_running(rootfs, state_id)
    }
    for change in changes:
        fresh = {"kind": change.kind, "name": change.name, "value": change.value, "set": []}
        known = records.get((change.kind, change.name), fresh)
        known = fresh if change.kind in GPU_MODES and known.get("boot_id") != boot_id else known
        records[(change.kind, change.name)] = dict(
            known,
            set=[one for one in known["set"] if one != change.wanted] + [change.wanted],
            boot_id=boot_id,
        )
    _write(folder, records.values())


def forget_running(rootfs: str, state_id: str, changes: Sequence[Change]) -> None:
    """Removes the records of values that could not be changed."""
    if not state_id or not changes:
        return
    wanted = {(change.kind, change.name): change.wanted for change in changes}
    records = [
        dict(
            record,
            set=[
                one for one in record["set"] if one != wanted.get((record["kind"], record["name"]))
            ],
        )
        for record in read_running(rootfs, state_id)
    ]
    _write(folder_of(rootfs, state_id), [record for record in records if record["set"]])


def read_running(rootfs: str, state_id: str) -> list[dict[str, Any]]:
    """[record] of a state, [] if it has none. Raises OSError, and ValueError naming the file if it
    is broken."""
    path = f"{STATES}/{state_id}/{RUNNING_FILE}"
    saved = read_own_json(rootfs, path, SCHEMA) or {"records": []}
    records = saved.get("records")
    if not isinstance(records, list) or not all(
        isinstance(one, dict) and {"kind", "name", "value", "set"} <= set(one) for one in records
    ):
        raise ValueError(f"{path} does not hold what unhang saved there")
    return records


def value_before(now: Any, records: Sequence[dict[str, Any]]) -> Any:
    """The original value of these records of one value (newest first); None if somebody else has
    changed it since. No I/O."""
    changes = [Written(one["value"], [*one["set"], one["value"]]) for one in records]
    return records[-1]["value"] if is_as_written(now, changes) else None


def _write(folder: str, records: Iterable[dict[str, Any]]) -> None:
    rows = sorted(records, key=lambda record: (record["kind"], record["name"]))
    text = json.dumps({"schema": SCHEMA, "records": rows}, indent=1, sort_keys=True) + "\n"
    write_text(os.path.join(folder, RUNNING_FILE), text if rows else None, 0o600)
