"""The threads that `py-spy dump --json` prints. Values in, values out; names of frames are text of
the job."""

from __future__ import annotations

from ...base.parse.values import parse_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# of other threads; of the main thread, whose oldest frames are the user's, four times as many
MOST_THREADS, MOST_FRAMES = 64, 60


def parse_spy(text: str) -> list[dict[str, Any]]:
    """[{name, is_main, active, frames: ["function (file:line)", youngest first]}], the main thread
    first. Raises ValueError."""
    content = parse_json(text)
    if not isinstance(content, list):
        raise ValueError("expected a list of threads from py-spy, found something else")
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
    }


def _frame(frame: dict[str, Any]) -> str:
    path = str(frame.get("filename") or "?")
    line = frame.get("line")
    return f"{str(frame.get('name'))[:120]} ({path[-160:]}:{line if isinstance(line, int) else 0})"
