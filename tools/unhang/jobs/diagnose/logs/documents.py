"""Messages in a JSON document of a log collector, whatever its layout: one object or many,
on one line or on several, nested or in a list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from unhang_node.base.parse.values import as_maps

_KEYS = "log message msg MESSAGE textPayload line text content"
MESSAGES = _KEYS.split()
TIMES = ("time", "@timestamp", "timestamp", "ts", "__REALTIME_TIMESTAMP")
DEEPEST = 12
_BEGINS_JSON = re.compile(rb"\s{0,100}(?:\[\s{0,100}[\[{]|\{\s{0,100}\")")
_GAP = re.compile(r"[\s,]{0,1000}")


def may_be_document(head: bytes) -> bool:
    """Whether a file begins as a document with messages, or of a tool that is known."""
    keys = (*MESSAGES, "frames")
    return bool(_BEGINS_JSON.match(head)) and any(f'"{key}"'.encode() in head for key in keys)


def messages_in(text: str) -> list[tuple[int, str]]:
    """(line number, message) of a document, each line of a message by itself; [] if it is none or
    has no messages."""
    return [
        (number, line)
        for number, message in _in_json(text)
        for line in message.splitlines()
        if line.strip()
    ]


def _in_json(text: str) -> Iterator[tuple[int, str]]:
    decoder, at = json.JSONDecoder(), 0
    while (gap := _GAP.match(text, at)) and gap.end() < len(text):
        try:
            value, end = decoder.raw_decode(text, gap.end())
        except (ValueError, RecursionError):
            return
        searched, number = gap.end(), 1 + text.count("\n", 0, gap.end())
        if stacks := [*_of_py_spy(value)]:
            yield number, "\n".join(stacks)
            return
        for message in strings_of(value, 0):
            start = json.dumps(message.splitlines()[0] if message else "", ensure_ascii=False)[1:41]
            place = text.find(start, searched, end)
            if place >= 0:
                number, searched = number + text.count("\n", searched, place), place
            yield number, message
        at = end


def strings_of(value: Any, depth: int) -> Iterator[str]:
    """The messages in a decoded value, in their order; a time beside a message is put before it."""
    if depth > DEEPEST:
        return
    if isinstance(value, list):
        for one in value:
            yield from strings_of(one, depth + 1)
    elif isinstance(value, dict):
        message = next((one for key in MESSAGES if (one := _text(value.get(key)))), None)
        if message is not None:
            moment = next(
                (
                    value[key]
                    for key in TIMES
                    if isinstance(value.get(key), str) and ":" in value[key]
                ),
                "",
            )
            yield f"{moment} {message}" if moment else message
        for key, one in value.items():
            if isinstance(one, (list, dict)) and key not in MESSAGES:
                yield from strings_of(one, depth + 1)


def _text(value: Any) -> str | None:
    """A message; the journal writes one that is no UTF-8 as a list of bytes."""
    if (
        isinstance(value, list)
        and value
        and all(isinstance(one, int) and 0 <= one < 256 for one in value)
    ):
        return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) and value.strip() else None


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())[:1000]


def _of_py_spy(threads: Any) -> Iterator[str]:
    """The stacks of py-spy dump --json as it prints them for people
    (https://github.com/benfred/py-spy): a list of threads, each with its process and frames."""
    pid = None
    for thread in as_maps(threads):
        if not (frames := as_maps(thread.get("frames"))):
            continue
        if (own := thread.get("pid")) != pid:
            about = thread.get("process_info")
            command = about.get("command_line") if isinstance(about, dict) else None
            yield f"Process {_one_line(own)}: {_one_line(command or 'python')}"
            pid = own
        thread_id, name = thread.get("os_thread_id") or own, thread.get("thread_name") or ""
        state = "active" if thread.get("active") else "idle"
        state += "+gil" if thread.get("owns_gil") else ""
        yield f'Thread {_one_line(thread_id)} ({state}): "{_one_line(name)}"'
        for frame in frames:
            path = frame.get("short_filename") or frame.get("filename")
            place = f"{_one_line(path)}:{_one_line(frame.get('line'))}"
            yield f"    {_one_line(frame.get('name'))} ({place})"
