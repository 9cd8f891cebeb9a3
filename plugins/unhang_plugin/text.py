"""Words that come from a node or a connection, made safe to print."""

from __future__ import annotations

MESSAGE_LIMIT = 500


def clean(words: object, limit: int = MESSAGE_LIMIT) -> str:
    """One line of printable characters: a terminal escape, a line break or a text-direction override becomes a space. Cut at `limit`."""
    printable = "".join(character if character.isprintable() else " " for character in str(words)[: 8 * limit])
    line = " ".join(printable.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
