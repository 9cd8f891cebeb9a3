"""The short form of what was found about a job, `unhang/evidence-short/1`: for a ticket, a bundle
and an assistant. Values in, text out.

Its size is bounded, whatever the evidence holds: texts and lists are cut alike, step by step,
until the whole has room, and `cut` says of which lists how much is there. Secrets are masked before
anything is cut, because half a secret is not recognised.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from unhang.core.quotes import leading_words

SCHEMA = "unhang/evidence-short/1"
MOST_BYTES = 16 << 10
# (letters of a text, entries of a list), until it fits
_STEPS = ((500, 48), (400, 24), (300, 16), (240, 10), (180, 6), (120, 4), (80, 2), (40, 1))
_LONGER = {"headline": 3, "command": 8, "full": 8}  # times the letters: half a command is none
MARK = "…"


def render_short_evidence(found: Mapping[str, Any]) -> str:
    """One JSON object of at most MOST_BYTES. found: the document without schema and cut, secrets
    masked."""
    return json.dumps(shortened({"schema": SCHEMA, **found}), indent=1) + "\n"


def shortened(
    document: Mapping[str, Any], finished: Callable[[dict[str, Any]], dict[str, Any]] = dict
) -> dict[str, Any]:
    """The document with texts and lists cut until its JSON has at most MOST_BYTES, and with `cut`.
    Secrets are masked before. It has a bounded number of keys. finished: makes what is measured
    and returned of a document that is cut."""
    for letters, entries in _STEPS:
        cut: dict[str, tuple[int, int]] = {}
        short = {
            name: _short(value, name, letters, entries, cut) for name, value in document.items()
        }
        short |= {
            "cut": [
                {"what": what, "kept": kept, "of": of} for what, (kept, of) in sorted(cut.items())
            ]
        }
        whole = finished(short)
        if len(json.dumps(whole, indent=1)) < MOST_BYTES:
            return whole
    raise AssertionError("the smallest step has a bounded size")


def _short(
    value: Any, path: str, letters: int, entries: int, cut: dict[str, tuple[int, int]]
) -> Any:
    """The value with each text and list cut; cut: path -> (kept, of), added up over equal paths."""
    if isinstance(value, str):
        most = letters * _LONGER.get(path.rpartition(".")[2], 1)
        if len(value) <= most:
            return value
        _count(cut, path, most, len(value))
        kept = leading_words(value, most)
        is_ranks = path.endswith("ranks") and "," in kept  # never half a number
        return (kept.rpartition(",")[0] + "," if is_ranks else kept) + MARK
    if isinstance(value, Mapping):
        return {
            name: _short(one, f"{path}.{name}", letters, entries, cut)
            for name, one in value.items()
        }
    if isinstance(value, list | tuple):
        if len(value) > entries:
            _count(cut, path, entries, len(value))
        return [_short(one, path, letters, entries, cut) for one in value[:entries]]
    return value


def _count(cut: dict[str, tuple[int, int]], path: str, kept: int, of: int) -> None:
    before = cut.get(path, (0, 0))
    cut[path] = (before[0] + kept, before[1] + of)
