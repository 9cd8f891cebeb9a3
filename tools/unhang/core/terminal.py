"""How wide the terminal is, and what it can show. Apart from the tables, so that whoever prints no
table need not load them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO

PIPED_WIDTH, NARROWEST = 100, 40


def terminal_shape(stream: TextIO, environ: Mapping[str, str]) -> tuple[int, bool, bool]:
    """(width in columns, colour, ASCII only) for output to `stream`. COLUMNS decides the width,
    also for a pipe and a file."""
    narrow = False
    try:
        "·×…→".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        narrow = True
    asked = environ.get("COLUMNS", "")
    width = int(asked) if asked.isascii() and asked.isdigit() else 0
    if not stream.isatty():
        return max(width or PIPED_WIDTH, NARROWEST), False, narrow
    try:
        width = width or os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        width = 80
    colour = not environ.get("NO_COLOR") and environ.get("TERM", "") not in ("dumb", "")
    return max(width, NARROWEST), colour, narrow
