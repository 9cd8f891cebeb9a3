"""Reads torch's flight-recorder dumps that the nodes of a smoke test send, as plain data only."""

from __future__ import annotations

import base64
from typing import Any

from unhang.core.plain_pickle import NotPlain, load_plain


def summarise(encoded: Any) -> dict[str, Any]:
    """{last_enqueued, last_completed, last: {operation, state, where}} of a dump as a node sent it
    (base64), or {refused: why}. {} for None."""
    if not isinstance(encoded, str):
        return {}
    try:
        dump = load_plain(base64.b64decode(encoded, validate=True))
    except NotPlain as problem:
        return {"refused": f"the flight recording was not read: it {problem}"}
    except ValueError as problem:  # text that is not ASCII is no binascii.Error
        return {"refused": f"the flight recording was not read: it is not base64: {problem}"}
    if not isinstance(dump, dict):
        return {"refused": "the flight recording was not read: it is no map"}
    found: dict[str, Any] = {}
    status = dump.get("pg_status")
    main = status.get("0") if isinstance(status, dict) else None
    if isinstance(main, dict):
        found = {
            "last_enqueued": _plain(main.get("last_enqueued_collective")),
            "last_completed": _plain(main.get("last_completed_collective")),
        }
    entries = dump.get("entries")
    if isinstance(entries, list) and entries and isinstance(entries[-1], dict):
        last = entries[-1]
        found["last"] = {
            "operation": _plain(last.get("profiling_name")),
            "state": _plain(last.get("state")),
            "where": _where(last.get("frames")),
        }
    return found


def _plain(value: Any) -> str | int | None:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool)
        else None
        if value is None
        else str(value)[:200]
    )


def _where(frames: Any) -> str | None:
    for frame in frames if isinstance(frames, list) else []:
        if isinstance(frame, dict) and "/torch/" not in str(frame.get("filename")):
            return f"{frame.get('name')} at {frame.get('filename')}:{frame.get('line')}"[:300]
    return None
