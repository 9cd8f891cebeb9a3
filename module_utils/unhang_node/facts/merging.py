"""Merges pieces of several sources into one section: fields, the status of the section's own
source, and equal reasons of all devices folded."""

from __future__ import annotations

import re

from ..base.document import clean_text, clean_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from ..base.probe import SourceResult
    from ..base.section import UnreadRow

MOST_UNREAD = 512
# Rows of these lists describe the same thing if these fields are equal.
PLACE = ("path", "where", "container")
SAME_WHEN: dict[tuple[str, ...], tuple[str, ...]] = {
    ("gpus", "devices"): ("index",),
    ("nccl", "libraries"): PLACE,
    ("torch", "environments"): PLACE,
}
# In these fields a later source overrides an earlier one: NVML itself has met the mismatch.
LATER_WINS = {("driver", "mismatch"), ("driver", "mismatch_text")}
INDEX = re.compile(r"\[(\d+)\]")


def merge_section(
    name: str,
    own: SourceResult | None,
    others: list[SourceResult],
    adds: dict[str, tuple[str, ...]],
) -> dict[str, Any]:
    """One section of the document.

    own: SourceResult of the source that decides the status, or None; others: SourceResults that add
    fields, each with `adds[answer.name]`, the fields that it should have added: those that it could
    not are listed in probe.unread.
    """
    section, unread, spent_ms = (
        {"probe": {"status": "ok", "duration_ms": 0.0, "error": None, "unread": []}},
        [],
        0.0,
    )
    probe = section["probe"]
    for answer in ([own] if own else []) + others:
        refused: list[str] = []
        for piece in answer.pieces:
            if piece.section != name:
                continue
            _merge(section, clean_value(piece.fields, "", refused), (name,))
            unread.extend(piece.unread)
            if answer is own:
                spent_ms += piece.duration_ms
        unread.extend(
            {"field": path, "status": "error", "reason": "no number that JSON has"}
            for path in refused
        )
    if own:
        probe["status"], probe["error"] = _outcome(name, own)
        probe["duration_ms"] = round(spent_ms or own.duration_ms or 0.0, 1)
    for answer in others:
        unread.extend(_missing(name, answer, adds[answer.name], section))
    probe["unread"] = fold_unread(unread, section)
    return section


def _outcome(name: str, answer: SourceResult) -> tuple[str | None, str | None]:
    """(status, error) of the section by its own source."""
    pieces = [piece for piece in answer.pieces if piece.section == name]
    for piece in pieces:
        if piece.status:
            return piece.status, piece.error
    if pieces and not pieces[-1].more:
        return "ok", None
    if answer.status == "ok":
        return "error", f"source {answer.name} ended without a word on it"
    return answer.status, answer.error


def _missing(
    name: str, answer: SourceResult, fields: tuple[str, ...], section: dict[str, Any]
) -> list[UnreadRow]:
    """Rows for the fields that another source should have added and did not."""
    failed = next(
        (
            (piece.status, piece.error)
            for piece in answer.pieces
            if piece.section == name and piece.status
        ),
        None,
    )
    status, error = failed or (answer.status or "error", answer.error)
    if status == "ok":
        return []
    return [
        {"field": field, "status": status, "reason": error or status}
        for field in fields
        if section.get(field) is None
    ]


def _merge(into: dict[str, Any], fields: dict[str, Any], path: tuple[str, ...]) -> None:
    for key, value in fields.items():
        here = path + (key,)
        if key not in into or into[key] is None or (here in LATER_WINS and value is not None):
            into[key] = value
        elif isinstance(into[key], dict) and isinstance(value, dict):
            _merge(into[key], value, here)
        elif isinstance(into[key], list) and isinstance(value, list):
            _merge_lists(into[key], value, here)


def _merge_lists(into: list[Any], rows: list[Any], path: tuple[str, ...]) -> None:
    keys = SAME_WHEN.get(path)
    known = {tuple(row.get(key) for key in keys): row for row in into} if keys else {}
    for row in rows:
        same = known.get(tuple(row.get(key) for key in keys)) if keys else None
        if same is not None:
            _merge(same, row, path)
        elif row not in into:
            into.append(row)


def fold_unread(rows: Iterable[dict[str, Any]], section: dict[str, Any]) -> list[UnreadRow]:
    """Rows of probe.unread: a reason that every item of a list has is reported once, as
    devices[*].field; cleaned, without repeats, at most 512."""
    groups: dict[tuple[str, Any, str], list[str]] = {}
    for row in rows:
        field = clean_text(str(row.get("field")), 512)
        pattern = INDEX.sub("[*]", field, count=1)
        key = (pattern, row.get("status"), clean_text(str(row.get("reason")), 1024))
        fields = groups.setdefault(key, [])
        if field not in fields:
            fields.append(field)
    folded: list[UnreadRow] = []
    for (pattern, status, reason), fields in groups.items():
        whole = pattern != fields[0] and len(fields) == len(
            section.get(pattern.partition("[")[0]) or []
        )
        folded.extend(
            {"field": field, "status": status, "reason": reason}
            for field in ([pattern] if whole else fields)
        )
    if len(folded) > MOST_UNREAD:
        omitted = len(folded) - MOST_UNREAD + 1
        folded[MOST_UNREAD - 1 :] = [
            {"field": "*", "status": "error", "reason": f"{omitted} more reasons left out"}
        ]
    return folded
