"""The resets and boots that unhang ordered for faulty GPUs, and the Xids that they settled. Text to
values."""

from __future__ import annotations

import math

from ...base.parse.values import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 64  # rows that are kept, the newest
TEXTS = ("uuid", "pci_address", "verb", "boot_id")


def parse_gpu_resets(text: str) -> list[dict[str, Any]]:
    """[{uuid, pci_address, verb, because, at (seconds since 1970), boot_id, log_s}] of
    gpu_resets.json, oldest first. log_s: the time of the kernel log's last line when the reset had
    ended, in seconds since boot; None for a boot and for a reset that did not end. A row of another
    form is left out; [] for other text."""
    try:
        rows = parse_json(text)
    except ValueError:
        return []
    rows = rows.get("resets") if isinstance(rows, dict) else None
    found = [_row(one) for one in rows if isinstance(one, dict)] if isinstance(rows, list) else []
    return [one for one in found if one is not None][-MOST:]


def _row(row: dict[str, Any]) -> dict[str, Any] | None:
    texts = {name: _text(row.get(name)) for name in TEXTS}
    at, log_s, because = (row.get(name) for name in ("at", "log_s", "because"))
    if texts["verb"] is None or not _is_number(at) or not isinstance(because, list):
        return None
    faults = [one for one in map(_text, because[:16]) if one is not None]
    return dict(texts, because=faults, at=at, log_s=log_s if _is_number(log_s) else None)


def _text(value: Any) -> str | None:
    return value[:256] if isinstance(value, str) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def without_settled(
    events: list[dict[str, Any]], resets: list[dict[str, Any]], boot_id: str | None
) -> list[dict[str, Any]]:
    """The events without the Xids of a GPU that was reset after the last of them in this boot: they
    are about a state that is gone, as those before a boot are."""
    ends = {
        row["pci_address"]: row["log_s"]
        for row in sorted(resets, key=lambda one: one["at"])
        if row["log_s"] is not None and row["boot_id"] == boot_id and boot_id is not None
    }
    return [
        event
        for event in events
        if not (
            event["kind"] == "xid"
            and event["last_s"] is not None
            and event["last_s"] <= ends.get(event["pci_address"], -1)
        )
    ]
