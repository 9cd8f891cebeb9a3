"""The one place through which everything is printed: nothing that a terminal would act upon goes
out raw, and every character has a form in any encoding.

Renderers make text fit for people with `text.visible`; what one of them forgets, and what is JSON,
is made safe here. An escape is written as in JSON (`\\u202e`), so that a document stays one, with
the same content.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

# Colours and the cursor movements of the rollout's display pass; \r returns to the beginning of a
# progress line.
_NOT_PLAIN = re.compile(r"\x1b\[[0-9;]{0,20}[mAJ]|[^\n\r\t -~]")


class SafeStream:
    """A text stream whose `write` escapes what `safe_text` does; everything else is the stream's
    own."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(
            safe_text(text, getattr(self._stream, "encoding", None) or "utf-8")
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def safe_text(text: str, encoding: str = "utf-8") -> str:
    """The text with an escape for each character that is unprintable or that the encoding lacks.
    Colours stay."""

    def shown(found: re.Match[str]) -> str:
        part = found[0]
        if len(part) > 1 or (
            (part.isprintable() or unicodedata.category(part) == "Zs") and _has(encoding, part)
        ):
            return part
        units = part.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))

    return _NOT_PLAIN.sub(shown, text)


def _has(encoding: str, letter: str) -> bool:
    try:
        letter.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@contextlib.contextmanager
def printing_safely() -> Iterator[None]:
    """Standard output and error as SafeStream; one that the caller has closed goes nowhere."""
    before = sys.stdout, sys.stderr
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        sys.stdout, sys.stderr = (
            SafeStream(nowhere if stream is None else stream) for stream in before
        )
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
