"""A text or a number with its place in a file. What is not known is None."""

from __future__ import annotations

import re
from typing import Any

from unhang.core.text import counted

_NUMBER = re.compile(r"\d{1,5}")
_SIZE = re.compile(r"(?P<number>\d{1,15}(?:\.\d{1,3})?)\s?(?P<unit>[bkmgt]?)i?b?", re.IGNORECASE)
_UNITS = "bkmgt"  # each 1024 of the one before


class Placed:
    """line: from 1. shown: as the file has it. how: "written", "default" if a scheduler or runtime
    has it without being asked, or the type that YAML gives a value."""

    line = 0
    shown = ""
    how = "written"


class Text(Placed, str):
    """A text with its place."""


class Number(Placed, int):
    """A number with its place; in a format it counts what the format names: {nodes:node}, or
    {count:process|processes}."""

    def __format__(self, what: str) -> str:
        return counted(int(self), *what.split("|")) if what else str(int(self))


def placed(value: Any, at: Any, shown: str = "", how: str = "written") -> Any:
    """A text or a number at a line, or at the place of another one."""
    made = (Text if isinstance(value, str) else Number)(value)
    made.line = at if type(at) is int else at.line
    made.shown, made.how = shown or getattr(at, "shown", "") or str(value), how
    return made


def number(value: object) -> Number | None:
    """The number that a text is, at its place; None for anything else."""
    if isinstance(value, Text) and _NUMBER.fullmatch(value):
        found: Number = placed(int(value), value, how=value.how)
        return found
    return None


def bytes_of(size: object, unit: str = "b") -> Number | None:
    """A size in bytes; None for one that is not in the text, and for 0. unit: of a size without."""
    found = _SIZE.fullmatch(size.strip()) if isinstance(size, Text) else None
    if found is None:
        return None
    power = _UNITS.index(found["unit"].lower() or unit)
    return placed(int(float(found["number"]) * (1 << 10 * power)), size) or None


ONE: Number = placed(1, 0, how="default")
Count = Number | None
