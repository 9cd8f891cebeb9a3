"""The rules of every document: plain JSON values, no control characters, no NaN, at most 1 MiB."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT_BYTES = 1024 * 1024
TEXT_LIMIT = 4096
DEPTH_LIMIT = 32
LARGEST_INTEGER = 2**64 - 1
MOST_CUTS = 256
ROOM_FOR_CUTS = 16 * 1024


def clean_text(text: str, limit: int = TEXT_LIMIT) -> str:
    """Text on one line without control, format or surrogate characters, and not longer than
    `limit`."""
    text = text[:limit]
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text)


def clean_value(
    value: Any, path: str = "", refused: list[str] | None = None, depth: int = 0
) -> Any:
    """The value as plain JSON. Numbers that JSON does not have (NaN, infinities, more than 64 bits)
    become None; their paths are appended to `refused`."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, int):
        if -LARGEST_INTEGER <= value <= LARGEST_INTEGER:
            return int(value)
    elif isinstance(value, float):
        if value - value == 0.0:
            return value
    elif depth < DEPTH_LIMIT:
        if isinstance(value, dict):
            return {
                clean_text(str(key)): clean_value(
                    item, f"{path}.{key}" if path else str(key), refused, depth + 1
                )
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [
                clean_value(item, f"{path}[{index}]", refused, depth + 1)
                for index, item in enumerate(value)
            ]
        return clean_text(str(value))
    if refused is not None:
        refused.append(path)
    return None


def encode(document: Any) -> str:
    """The document as JSON text, ASCII only. Raises ValueError on NaN."""
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def cut_to_size(document: dict[str, Any]) -> dict[str, Any]:
    """Halves the largest list until the document fits, and names each cut list in collector.cut.
    Changes and returns the document."""
    cut = document["collector"].setdefault("cut", [])
    while len(encode(document)) + ROOM_FOR_CUTS > LIMIT_BYTES and len(cut) < MOST_CUTS:
        found = _largest_list(document["sections"], "")
        if found is None:
            break
        _, path, items = found
        del items[len(items) // 2 :]
        if path not in cut:
            cut.append(path)
    return leave_out_sections(document)


def leave_out_sections(document: dict[str, Any]) -> dict[str, Any]:
    """If no shorter list suffices, omits the largest section, which then reports this; a probe that
    is large itself loses its unread rows first."""
    sections = document["sections"]
    while len(encode(document)) > LIMIT_BYTES and sections:
        name = max(sections, key=lambda name: len(encode(sections[name])))
        size = len(encode(sections[name]))
        if set(sections[name]) == {"probe"} and not sections[name]["probe"].get("unread"):
            break
        error = f"left out: {size} bytes, and a document has at most {LIMIT_BYTES}"
        sections[name] = {
            "probe": {"status": "error", "duration_ms": 0.0, "error": error, "unread": []}
        }
    return document


def _largest_list(value: Any, path: str) -> tuple[int, str, list[Any]] | None:
    """(bytes, path, list) of the largest list, or None. A list inside a list of objects is chosen
    if it makes up most of the outer one."""
    best = None
    if isinstance(value, dict):
        children = [(item, f"{path}.{key}" if path else key) for key, item in value.items()]
    elif isinstance(value, list):
        children = [(item, f"{path}[{index}]") for index, item in enumerate(value)]
    else:
        return None
    for item, place in children:
        if isinstance(item, (dict, list)):
            found = _largest_list(item, place)
            if found and (best is None or found[0] > best[0]):
                best = found
    if isinstance(value, list) and value:
        weight = len(encode(value))
        if best is None or best[0] * 2 < weight:
            best = (weight, path, value)
    return best
