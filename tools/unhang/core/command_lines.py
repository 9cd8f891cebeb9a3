"""Wraps long commands so that they can be pasted."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Between blanks outside of quotes; a quotation without an end ends the text.
_WORD = re.compile(r"""(?:[^ '"]|'[^']*'|"[^"]*"|['"].*)+""", re.DOTALL)


def command_lines(text: str, width: int) -> list[str]:
    r"""A command over several lines, each but the last ending in a backslash; nothing between
    quotes is broken."""
    lines = [""]
    for word in _with_values(_WORD.findall(text)):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and len(longer) > width - 2:
            lines[-1] += " \\"
            lines.append("  " + word)
        else:
            lines[-1] = longer
    return lines


def pasted(label: str, typed: str, width: int, start: str = "") -> list[str]:
    """A command behind its label; below it, over several lines that can be pasted, where one would
    be too long."""
    if len(line := f"{start}{label}: {typed}") <= width:
        return [line]
    parts = command_lines(typed, width - len(start) - 2)
    return [f"{start}{label}:", *(f"{start}  {part}" for part in parts)]


def _with_values(parts: Sequence[str]) -> list[str]:
    """The parts with each option joined to its value, so that they stay on one line."""
    joined: list[str] = []
    for word in parts:
        if (
            joined
            and joined[-1].startswith("-")
            and " " not in joined[-1]
            and not word.startswith("-")
        ):
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined
