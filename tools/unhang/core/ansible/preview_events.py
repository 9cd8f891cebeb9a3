"""The results of a preview as JSON lines: bounded, and without Ansible's own types."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PREVIEW_ENV = "UNHANG_PREVIEW"  # the file that the callback plugin writes
LONGEST_TEXT = 4000
LONGEST_SIDE = 32_000  # characters of a file before or after
MOST_DIFFS = 200
REPORTING = ("debug", "saved_state")  # without their collection


class PreviewFile:
    """The file, one result a line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.played: set[tuple[str, str]] = set()

    def add(
        self, host: str, role: str, task: str, action: str, status: str, result: Mapping[str, Any]
    ) -> None:
        """Writes what is worth a line: the first result of a role on a host, what would change,
        what is reported, what failed. Raises OSError."""
        event = event_of(host, role, task, action, status, result)
        news = (host, role) not in self.played
        self.played.add((host, role))
        if news or event["status"] != "ok" or event["needs_root"]:
            with self.path.open("a", encoding="utf-8") as target:
                target.write(json.dumps(event) + "\n")


def event_of(
    host: str, role: str, task: str, action: str, status: str, result: Mapping[str, Any]
) -> dict[str, Any]:
    """{host, role, task, status, text, diffs, needs_root}. status: ok, changed, reported or failed;
    role: "" outside roles; diffs: [{name, before, after}]; needs_root: as node_lock answers it."""
    diffs = list(_diffs(result))[:MOST_DIFFS]
    name = task.partition(" : ")[2] or task
    event: dict[str, Any] = {
        "host": str(host),
        "role": str(role),
        "task": str(name)[:LONGEST_TEXT],
        "status": status,
        "text": "",
        "diffs": [],
    }
    event["needs_root"] = result.get("needs_root") is True
    if status == "failed":
        return {**event, "text": _text(result.get("msg"))}
    if action.rpartition(".")[2] in REPORTING and result.get("msg"):
        return {**event, "status": "reported", "text": _text(result["msg"])}
    if result.get("changed"):
        return {**event, "status": "changed", "diffs": diffs}
    return event


def _text(messages: Any) -> str:
    """Ansible's message: a text, a list of texts or of what a person has to look at (`why`), or
    values by name."""
    rows = (
        messages if isinstance(messages, Sequence) and not isinstance(messages, str) else [messages]
    )
    return "; ".join(
        str(row["why"]) if isinstance(row, Mapping) and row.get("why") else _plain(row, "; ")
        for row in rows
    )[:LONGEST_TEXT]


def _plain(value: Any, between: str = ", ") -> str:
    """A value as a person writes it: names with their values, without those that are empty or
    false."""
    if isinstance(value, Mapping):
        return between.join(
            f"{str(name).replace('_', ' ')} {_plain(inner)}".removesuffix(" True")
            for name, inner in value.items()
            if inner
        )
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_plain, value))
    return str(value)


def _diffs(result: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """What changes, of the items of a loop too."""
    for item in result.get("results") or ():
        if isinstance(item, Mapping) and item.get("changed"):
            yield from _diffs(item)
    given = result.get("diff") or ()
    for one in [given] if isinstance(given, Mapping) else given:
        if not isinstance(one, Mapping):
            continue
        before, after = (_side(one.get(side)) for side in ("before", "after"))
        if prepared := one.get("prepared"):
            after = _side(prepared)
        if before != after:
            name = str(one.get("after_header") or one.get("before_header") or "").partition(
                " (content)"
            )[0]
            yield {"name": name[:LONGEST_TEXT], "before": before, "after": after}


def _side(value: Any) -> str:
    """A file's content unchanged, a value as JSON."""
    if value is None:
        return ""
    return (
        str(value)
        if isinstance(value, str)
        else json.dumps(value, indent=1, sort_keys=True, default=str)
    )[:LONGEST_SIDE]
