"""What a terminal gets besides text: colours. Only a `Screen` moves its cursor, over the lines that
it wrote itself."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from typing import Any

_COLOUR = r"(?:[0-4]|22|[349][0-7]|[34]9|[34]8;5;[0-9]{1,3})"
# What `printing` lets pass and a renderer never needs: movements, erasing, hidden text (8), and a
# \r that would write over the line before it.
_NOT_A_COLOUR = re.compile(rf"\x1b(?!\[(?:{_COLOUR}(?:;{_COLOUR})*)?m)|(?<=[^\n])\r(?!\n)")


class ColoursOnly:
    """A text stream whose `write` shows every escape sequence but those of colours as text;
    everything else is the stream's own."""

    def __init__(self, stream: Any) -> None:
        self.moved = stream  # what a Screen moves the cursor of

    def write(self, text: str) -> int:
        return int(
            self.moved.write(_NOT_A_COLOUR.sub(lambda found: f"\\u{ord(found[0]):04x}", text))
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.moved, name)


class Screen:
    """Lines at the end of a terminal that are replaced by the next ones. As a stream it writes
    other text above them; the next `draw` shows them again."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.drawn = 0  # lines

    def draw(self, lines: Sequence[str]) -> None:
        """Replaces the lines; those that the terminal has no room for are left out, because the
        cursor could not come back to them."""
        room = max(shutil.get_terminal_size().lines - 1, 2)
        shown = (
            lines
            if len(lines) <= room
            else [*lines[: room - 1], f"... {len(lines) - room + 1} more lines"]
        )
        self.clear()
        self.target.write("".join(f"{line}\n" for line in shown))
        self.target.flush()
        self.drawn = len(shown)

    def clear(self) -> None:
        if self.drawn:
            getattr(self.target, "moved", self.target).write(f"\x1b[{self.drawn}A\x1b[J")
            self.drawn = 0

    def write(self, text: str) -> int:
        self.clear()
        return int(self.target.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.target, name)
