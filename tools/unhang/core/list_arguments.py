"""Parses an operator's lists: a list in the inventory, or a text such as critical,error on the
command line."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from unhang.core.errors import UserError


def split_list(
    value: object, name: str, allowed: Collection[str] | None = None, may_be_empty: bool = False
) -> list[str]:
    """The members. A text is split at commas, and blanks around them are removed. Raises UserError
    naming the variable for an unknown or no member."""
    if value is None:
        value = []
    if isinstance(value, str):
        value = [part for part in (piece.strip() for piece in value.split(",")) if part]
    if not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise UserError(f"{name} takes a list of texts, or one text with commas, not {value!r}")
    members = [str(one) for one in value]
    unknown = [one for one in members if allowed is not None and one not in allowed]
    if unknown:
        raise UserError(
            f"{name} takes some of {', '.join(allowed or ())}, not {', '.join(unknown)}"
        )
    if not members and not may_be_empty:
        raise UserError(
            f"{name} is empty; it takes"
            f" {f'some of {chr(44).join(allowed)}' if allowed else 'at least one'}"
        )
    return members


def split_commands(value: object, name: str) -> list[list[str]]:
    """Commands, each a list of arguments. One that is a text is split as a shell does. Raises
    UserError naming the variable."""
    if value is None:
        value = []
    if isinstance(value, str):
        value = split_list(value, name, may_be_empty=True)
    if not isinstance(value, Sequence):
        raise UserError(f"{name} takes a list of commands, not {value!r}")
    return [_argv(one, name) for one in value]


def _argv(command: object, name: str) -> list[str]:
    try:
        argv = shlex.split(command) if isinstance(command, str) else command
    except ValueError as problem:
        raise UserError(f"{name} takes a command, not {command!r}: {problem}") from None
    if (
        not isinstance(argv, Sequence)
        or not argv
        or not all(isinstance(word, str) for word in argv)
    ):
        raise UserError(f"{name} takes a command as a list of arguments, not {command!r}")
    return [str(word) for word in argv]


def list_of_rows(value: object, name: str) -> list[dict[str, Any]]:
    """A list of mappings, which cannot be given as a text on the command line. Raises UserError
    naming the variable."""
    rows = [] if value is None else value
    if (
        isinstance(rows, str)
        or not isinstance(rows, Sequence)
        or not all(isinstance(row, Mapping) for row in rows)
    ):
        raise UserError(
            f'{name} takes a list of mappings, such as -e \'{{"{name}": [{{"name": "…"}}]}}\', not'
            f" {value!r}"
        )
    return [dict(row) for row in rows]
