"""Values that a person types: days, which have one spelling because they are compared as texts, and
numbers of things."""

from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable

from unhang.core.errors import UserError


def day_of(given: str, option: str) -> str:
    """YYYY-MM-DD. Raises UserError for another spelling."""
    try:
        return datetime.date.fromisoformat(given).isoformat()
    except ValueError:
        raise UserError(f"{option} takes a date such as 2026-12-31, not {given!r}") from None


def today_or(given: str | None) -> str:
    """The day of --now, today without it. Raises UserError as day_of does."""
    now = datetime.datetime.now(datetime.UTC)
    return now.date().isoformat() if given is None else day_of(given, "--now")


def number_of(things: str) -> Callable[[str], int]:
    """The type of an option whose value is a number of things, 0 too."""

    def parse(given: str) -> int:
        if not (given.isascii() and given.isdigit() and len(given) < 7):
            raise argparse.ArgumentTypeError(f"{given!r} is not a number of {things}")
        return int(given)

    return parse
