"""A variable that a file sets."""

from __future__ import annotations

from ..named_tuple import NamedTuple


class Assignment(NamedTuple):
    """NAME=value of a file. line: its number, None in files without lines. value None: the name is
    unset. certain False: the file computes the value, and value is its text before that."""

    name: str
    value: str | None
    line: int | None
    certain: bool = True
