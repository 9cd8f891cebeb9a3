"""Styled lines for a terminal: the caller says how wide it is and whether it shows colour and more
than ASCII."""

from __future__ import annotations

from collections.abc import Iterable

from unhang.core.text import ascii_only

STYLES = {
    "critical": "bold white on_red",
    "error": "bold red",
    "warning": "bold yellow",
    "info": "bold blue",
    "unknown": "bold magenta",
    "waived": "bold cyan",
}
Line = tuple[tuple[str, str], ...]  # (text, style) of its parts
# The parameters of ECMA-48's SGR, which every terminal with colours knows.
_SGR = {"bold": 1, "dim": 2, "on_red": 41} | {
    color: 31 + place
    for place, color in enumerate(("red", "green", "yellow", "blue", "magenta", "cyan", "white"))
}


def printed(lines: Iterable[Line], color: bool, plain: bool) -> str:
    """The lines as text, without blanks at their ends."""
    text = "".join(
        "".join(_colored(*part) if color else part[0] for part in line).rstrip() + "\n"
        for line in lines
    )
    return ascii_only(text) if plain else text


def _colored(text: str, style: str) -> str:
    codes = ";".join(str(_SGR[word]) for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text
