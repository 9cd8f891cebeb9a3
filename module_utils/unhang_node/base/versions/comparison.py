"""The result of comparing two versions."""

from __future__ import annotations

from typing import Any, NamedTuple


class Comparison(NamedTuple):
    """sign: -1, 0 or 1, None when the two have no order. equal: also known for some pairs without
    an order. reason: why they have none."""

    sign: int | None
    equal: bool | None
    reason: str = ""


class NotAVersion(ValueError):
    """The text is no version of the expected order; the message is one line for a person."""


def sign_of(left: Any, right: Any) -> int:
    """-1, 0 or 1 for two values that have an order."""
    return int(left > right) - int(left < right)
