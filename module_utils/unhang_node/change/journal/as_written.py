"""The rule of every rollback: a value comes back only if it is still as unhang wrote it. What
somebody else has changed since stays, and is listed. Values in, values out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Written(NamedTuple):
    """One change of one value."""

    before: Any  # as unhang found it
    after: Sequence[Any] | None  # all that unhang wrote; None if it was killed before it recorded


def is_as_written(now: Any, changes: Sequence[Written]) -> bool:
    """True if unhang wrote the present value, and found each earlier one as it had written it or
    as it was originally. changes: of this value, newest first, at least one."""
    for change in changes:
        if now == changes[-1].before:
            return True
        if change.after is not None and now not in change.after:
            return False
        now = change.before
    return True


def why_it_stays(expected: Any, found: Any) -> str:
    """The reason for a person."""
    return f"unhang left {expected} and it is {found} now; somebody changed it since, and it stays"
