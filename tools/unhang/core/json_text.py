"""A document as one JSON object on stdout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from unhang.core.secrets_in_text import masked_document


def render_json(findings: Mapping[str, Any]) -> str:
    """A document, indented; secrets are masked, and characters that a terminal would interpret or
    hide (escapes, reordering marks) are written as JSON escapes."""
    text = msgspec.json.format(
        msgspec.json.encode(masked_document(msgspec.to_builtins(findings))), indent=2
    ).decode()
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        letter if letter == "\n" or letter.isprintable() else _escaped(letter) for letter in text
    )


def _escaped(letter: str) -> str:
    code = ord(letter)
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF)
    return f"\\u{high:04x}\\u{low:04x}"
