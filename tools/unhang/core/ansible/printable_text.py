"""Makes text from a node or a connection safe to print."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

MESSAGE_LIMIT = 500
# ssh frames what it says of a changed host key in lines of @, which leave no room for the reason.
COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
FRAME = re.compile(r"@{5,}|(?<=\s)@(?=\s)")


def clean(message: object, limit: int = MESSAGE_LIMIT) -> str:
    """One line of printable characters: a terminal escape, a line break or a text-direction
    override becomes a space, ssh's frames of @ go. Cut at `limit`."""
    text = str(message)[: 8 * limit]
    printable = "".join(
        character if character.isprintable() else " " for character in FRAME.sub(" ", text)
    )
    line = " ".join(printable.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def printable(text: str) -> str:
    """The text with its lines and tabs; of every other character that a terminal would act upon a
    space is left."""
    return (
        str(text)
        if text.isprintable()
        else "".join(one if one.isprintable() or one in "\n\t" else " " for one in text)
    )


def printable_parts(value: Any) -> Any:
    """The same for every text in a message of Ansible (a dataclass), a mapping, a list or a
    tuple."""
    if isinstance(value, str):
        return printable(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value,
            **{
                field.name: printable_parts(getattr(value, field.name))
                for field in fields(value)
                if field.init
            },
        )
    if isinstance(value, Mapping):
        return {printable_parts(key): printable_parts(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return (
            type(value)([printable_parts(part) for part in value])
            if type(value) in (list, tuple)
            else [printable_parts(part) for part in value]
        )
    return value


def without_controls(text: str) -> str:
    """What Ansible prints, its own colours with it: only what sets a colour stays of terminal
    escapes."""
    return "".join(
        part if COLOUR.fullmatch(part) else printable(part) for part in COLOUR.split(text)
    )
