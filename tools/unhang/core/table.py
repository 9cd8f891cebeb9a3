"""Text that rich has laid out: the caller says how wide the terminal is and whether it shows colour
and more than ASCII."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console, RenderableType

from unhang.core.text import ascii_only

STYLES = {
    "critical": "bold white on red",
    "error": "bold red",
    "warning": "bold yellow",
    "info": "bold blue",
    "unknown": "bold magenta",
    "waived": "bold cyan",
}


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
        # A Text that must not be wrapped (a command) is printed on one line, because print()
        # ignores the Text's own setting.
        console.print(
            part,
            crop=False,
            no_wrap=getattr(part, "no_wrap", None),
            overflow=getattr(part, "overflow", None),
        )
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
    return ascii_only(text) if plain else text
