"""How wide the terminal is, and text that rich has laid out.

Text in, text out: the caller says how wide the terminal is and whether it shows colour and more than ASCII.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import TextIO

from rich.console import Console, RenderableType

from unhang.core.text import ascii_only

PIPED_WIDTH, NARROWEST = 100, 40
STYLES = {"critical": "bold white on red", "error": "bold red", "warning": "bold yellow", "info": "bold blue", "unknown": "bold magenta", "waived": "bold cyan"}


def terminal_shape(stream: TextIO, environ: Mapping[str, str]) -> tuple[int, bool, bool]:
    """(width in columns, colour, ASCII only) for output to `stream`. COLUMNS decides the width, also for a pipe and a file."""
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


def printed(parts: Sequence[RenderableType], width: int, color: bool, plain: bool) -> str:
    """Text formatted by rich, without blanks at the ends of lines."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        no_color=not color,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
        force_interactive=False,
    )
    for part in parts:
        # A Text that must not be wrapped (a command) is printed on one line, because print() ignores the Text's own setting.
        console.print(part, crop=False, no_wrap=getattr(part, "no_wrap", None), overflow=getattr(part, "overflow", None))
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
    return ascii_only(text) if plain else text
