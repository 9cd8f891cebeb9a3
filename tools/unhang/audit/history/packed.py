"""A section of a node's document as the history keeps it: JSON, packed."""

from __future__ import annotations

import zlib
from typing import Any

from unhang.core.run.documents import MAX_NODE_BYTES
from unhang.core.strict_json import NotStrict, parse_strictly


def pack_section(text: bytes) -> bytes:
    """The text of a section as it is stored."""
    return zlib.compress(text, 1)


def unpack_section(body: bytes) -> dict[str, Any]:
    """The section. What this program did not write, and what is larger than any document of a node,
    is read as empty."""
    try:
        found = parse_strictly(
            zlib.decompressobj().decompress(body, MAX_NODE_BYTES), half_characters=True
        )
    except (zlib.error, NotStrict):
        return {}
    return found if isinstance(found, dict) else {}
