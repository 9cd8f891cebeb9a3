"""Lists as operators give them: a list in the inventory, or a text such as critical,error on the command line."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from unhang.errors import UserError


def split_list(value: object, name: str, allowed: Collection[str] | None = None, may_be_empty: bool = False) -> list[str]:
    """The members. A text is split at commas and blanks around them go. Raises UserError naming the variable for an unknown or no member."""
    if value is None:
        value = []
    if isinstance(value, str):
        value = [part for part in (piece.strip() for piece in value.split(",")) if part]
    if not isinstance(value, Sequence) or not all(isinstance(one, str) for one in value):
        raise UserError(f"{name}: expected a list of texts, or one text with commas, found {value!r}")
    members = [str(one) for one in value]
    unknown = [one for one in members if allowed is not None and one not in allowed]
    if unknown:
        raise UserError(f"{name}: expected some of {', '.join(allowed or ())}, found {', '.join(unknown)}")
    if not members and not may_be_empty:
        raise UserError(f"{name}: expected {f'some of {chr(44).join(allowed)}' if allowed else 'at least one'}, found an empty list")
    return members
