"""Words that come from a node or a connection, made safe to print."""

from __future__ import annotations

import re

MESSAGE_LIMIT = 500
# ssh frames what it says of a changed host key in lines of @, which leave no room for the reason.
FRAME = re.compile(r"@{5,}|(?<=\s)@(?=\s)")


def clean(words: object, limit: int = MESSAGE_LIMIT) -> str:
    """One line of printable characters: a terminal escape, a line break or a text-direction override becomes a space, ssh's frames of @ go. Cut at `limit`."""
    text = str(words)[: 8 * limit]
    printable = "".join(character if character.isprintable() else " " for character in FRAME.sub(" ", text))
    line = " ".join(printable.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
