"""The threads that `py-spy dump --json` prints. Values in, values out; names of frames are text of
the job."""

from __future__ import annotations

import re

from ...base.parse.values import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# of other threads; of the main thread, whose oldest frames are the user's, four times as many
MOST_THREADS, MOST_FRAMES = 64, 60


# what a worker of a data loader works on: its batch of indices in torch's own frame, and what
# identifies an item in the reader's; other variables may hold anything, and are not read
_ITEM = re.compile(
    r"possibly_batched_index|(?:\w{1,40}_)?(?:path|file|filename|url|uri|shard|index|idx|item)"
)
_PLAIN = re.compile(r"[\"'\[(]|[+-]?[0-9]")  # not <Dataset at 0x7f1b8f3ca560>
MOST_ITEMS, LONGEST_ITEM = 3, 160


def parse_spy(text: str) -> list[dict[str, Any]]:
    """[{name, is_main, active, frames: ["function (file:line)", youngest first], item: ["path
    '/data/7.tar'"] where --locals shows one}], the main thread first. Raises ValueError."""
    content = parse_json(text)
    if not isinstance(content, list):
        raise ValueError("py-spy did not print a list of threads")
    threads = [_thread(row) for row in content if isinstance(row, dict)]
    threads.sort(key=lambda thread: not thread["is_main"])
    return threads[:MOST_THREADS]


def _thread(row: dict[str, Any]) -> dict[str, Any]:
    frames = (
        [frame for frame in row.get("frames") or [] if isinstance(frame, dict)]
        if isinstance(row.get("frames"), list)
        else []
    )
    name, pid = row.get("thread_name"), row.get("pid")
    is_main = (pid is not None and row.get("os_thread_id") == pid) or name == "MainThread"
    return {
        "name": None if name is None else str(name)[:64],
        "is_main": is_main,
        "active": row.get("active") is True,
        "frames": [
            _frame(frame) for frame in frames[: MOST_FRAMES * 4 if is_main else MOST_FRAMES]
        ],
        **({"item": item} if is_main and (item := _item(frames)) else {}),
    }


def _item(frames: list[dict[str, Any]]) -> list[str]:
    """Variables that say what a thread works on, those of the youngest frames first."""
    found: dict[str, str] = {}
    for frame in frames:
        values = frame.get("locals")
        for one in values if isinstance(values, list) else ():
            name, shown = (one.get("name"), one.get("repr")) if isinstance(one, dict) else ("", "")
            if (
                isinstance(name, str)
                and isinstance(shown, str)
                and _ITEM.fullmatch(name)
                and _PLAIN.match(shown)
            ):
                found.setdefault(name.replace("possibly_batched_index", "batch"), shown)
    return [f"{name} {shown[:LONGEST_ITEM]}" for name, shown in found.items()][:MOST_ITEMS]


def _frame(frame: dict[str, Any]) -> str:
    path = str(frame.get("filename") or "?")
    line = frame.get("line")
    return f"{str(frame.get('name'))[:120]} ({path[-160:]}:{line if isinstance(line, int) else 0})"
