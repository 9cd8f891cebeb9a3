"""Reads torch's flight-recorder dumps that the nodes of a smoke test send, as plain data only, each
in a child process with limits: a few bytes of a pickle can ask for gigabytes."""

from __future__ import annotations

import base64
from typing import Any

from unhang.core.limits import Limits, Stopped, run_limited
from unhang_node.base.parse.plain_pickle import NotPlain, unpickle_plain
from unhang_node.base.parse.values import as_list, as_map, as_maps

LIMITS = Limits(cpu_s=5, memory_bytes=1 << 28, wall_s=15)
UNREAD = "the flight recording was not read: it"


def summarise(encoded: Any) -> dict[str, Any]:
    """{last_enqueued, last_completed, last: {operation, state, where}} of a dump as a node sent it
    (base64), or {refused: why}. {} for None."""
    if not isinstance(encoded, str):
        return {}
    try:
        dump = base64.b64decode(encoded, validate=True)
    except ValueError as problem:  # text that is not ASCII is no binascii.Error
        return {"refused": f"{UNREAD} is not base64: {problem}"}
    found = run_limited(lambda _mark: _read(dump), LIMITS)
    if isinstance(found, Stopped):
        return {"refused": f"{UNREAD} took more than it may of: {found.by}"}
    return dict(found)


def _read(dump: bytes) -> dict[str, Any]:
    try:
        return _summary(unpickle_plain(dump))
    except MemoryError:
        raise
    except NotPlain as problem:
        return {"refused": f"{UNREAD} {problem}"}
    except Exception as problem:  # the unpickler raises whatever its input makes it
        return {"refused": f"{UNREAD} is no pickle of plain data: {type(problem).__name__}"}


def _summary(dump: Any) -> dict[str, Any]:
    if not isinstance(dump, dict):
        return {"refused": f"{UNREAD} is no map"}
    found: dict[str, Any] = {}
    if main := as_map(as_map(dump.get("pg_status")).get("0")):
        found = {
            "last_enqueued": _plain(main.get("last_enqueued_collective")),
            "last_completed": _plain(main.get("last_completed_collective")),
        }
    if last := as_map((as_list(dump.get("entries")) or [None])[-1]):
        found["last"] = {
            "operation": _plain(last.get("profiling_name")),
            "state": _plain(last.get("state")),
            "where": _where(last.get("frames")),
        }
    return found


def _plain(value: Any) -> str | int | None:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
        else None
        if value is None
        else str(value)[:200]
    )


def _where(frames: Any) -> str | None:
    for frame in as_maps(frames):
        if "/torch/" not in str(frame.get("filename")):
            return f"{frame.get('name')} at {frame.get('filename')}:{frame.get('line')}"[:300]
    return None
