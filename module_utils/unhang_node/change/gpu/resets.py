"""The record of resets of faulty GPUs and of boots for them: what was done when, and for which
faults."""

from __future__ import annotations

import json
import re
import time
from typing import Any, Dict, List, Mapping, Sequence

from ...facts.parse.gpu_resets import MOST, parse_gpu_resets
from ...facts.parse.kernel_log import split_line
from ...facts.sections.faults import RESETS
from ..atomic_files import place_of, read_text_or_none, write_text
from ..journal.node_lock import read_boot_id
from .exchange_steps import RESET_ENDED

RESET = "reset the GPU"
DAY_S = 24 * 3600
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Gpus = Sequence[Mapping[str, Any]]


def uuids_to_reset(gpus: Gpus) -> List[str]:
    """UUIDs of the GPUs to reset; none if one of them needs a boot, which resets all. Raises
    ValueError for anything else than a UUID."""
    if any(one["verb"] != RESET for one in gpus):
        return []
    for one in gpus:
        if not _UUID.fullmatch(one["uuid"] or ""):
            raise ValueError(f"{str(one['uuid'])[:80]!r} is not the UUID of a GPU")
    return [one["uuid"] for one in gpus]


def refuse_again(gpus: Gpus, rows: Sequence[Mapping[str, Any]], now: float) -> None:
    """Raises ValueError for a GPU that was treated in the same way for the same fault within a day.
    rows: of read_records; one from the future, by a clock that was set back, counts."""
    for one in gpus:
        for row in rows:
            same = sorted(set(row["because"]) & set(one["because"]))
            if same and row["verb"] == one["verb"] and _is_it(row, one) and now - row["at"] < DAY_S:
                raise ValueError(
                    f"{one['verb']!r} was done to GPU {one['uuid'] or one['pci_address']} only"
                    f" {round((now - row['at']) / 3600, 1):g} hours ago for {', '.join(same)}; have"
                    " the GPU replaced"
                )


def _is_it(row: Mapping[str, Any], gpu: Mapping[str, Any]) -> bool:
    return any(gpu[name] and row[name] == gpu[name] for name in ("uuid", "pci_address"))


def record(gpus: Gpus) -> None:
    """Records what is about to be done, so that it counts even if it does not end. Raises OSError,
    ValueError."""
    made: List[Dict[str, Any]] = [
        {
            "uuid": one["uuid"],
            "pci_address": one["pci_address"],
            "verb": one["verb"],
            "because": list(one["because"]),
            "at": round(time.time()),
            "boot_id": read_boot_id("/"),
            "log_s": None,
        }
        for one in gpus
    ]
    _write([*read_records(), *made])


def record_end(gpus: Gpus, logged: List[str]) -> None:
    """Records where the kernel log ended after the reset: what it said about these GPUs before is
    settled. logged: of the script that reset them. Raises OSError, ValueError."""
    rows, log_s, ended = read_records(), log_end_s(logged), {one["uuid"] for one in gpus}
    newest = {row["uuid"]: row for row in rows if row["uuid"] in ended}
    _write([dict(row, log_s=log_s) if row is newest.get(row["uuid"]) else row for row in rows])


def log_end_s(logged: List[str]) -> float:
    """Seconds since boot of the kernel log's last line, by the clock that dates its lines; by
    /proc/uptime where it cannot be read."""
    uptime, *last = logged[logged.index(RESET_ENDED) + 1 :][:2]
    stamp_s = split_line(last[0], None)[0] if last else None
    return float(uptime.split()[0]) if stamp_s is None else stamp_s


def read_records() -> List[Dict[str, Any]]:
    """The rows of parse_gpu_resets. Raises OSError, ValueError."""
    return parse_gpu_resets(read_text_or_none(place_of("/", RESETS)) or "")


def _write(rows: List[Dict[str, Any]]) -> None:
    text = json.dumps({"schema": "unhang/state/1", "resets": rows[-MOST:]}, indent=1)
    write_text(place_of("/", RESETS), text + "\n", 0o644)
