"""Texts without which a pattern cannot match: a line that lacks them needs no search.

Read from the pattern's syntax tree. Digits are ignored on both sides, so that one comparison
decides for all lines that differ only in their digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from re import IGNORECASE
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

SHORTEST = 2  # bytes; a single character excludes almost no line
_REPEATING = (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT)
_WITHOUT_WIDTH = (constants.AT, constants.ASSERT, constants.ASSERT_NOT)
_AMBIGUOUS = "\ufffd"  # also stands for bytes that are no UTF-8
# of texts (bytes), and of alternatives: a tuple of Needed, of which one must be there
Needed = tuple[Any, ...]


def needed_texts(pattern: str) -> Needed:
    """The parts that every matching text contains, without digits; () if there are none for
    certain."""
    parsed = parser.parse(pattern)
    return () if parsed.state.flags & IGNORECASE else tuple(dict.fromkeys(_needed(parsed)))


def holds(needed: Needed, text: bytes) -> bool:
    """Whether a text without digits contains all needed parts."""
    for one in needed:
        if isinstance(one, bytes):
            if one not in text:
                return False
        elif not any(holds(way, text) for way in one):
            return False
    return True


def _needed(parsed: Any) -> Iterator[Any]:
    """Runs of literal characters, and alternatives each of which needs something."""
    run = ""
    for operation, argument in _in_sequence(parsed):
        if operation == constants.LITERAL and chr(argument) != _AMBIGUOUS:
            run += "" if chr(argument) in "0123456789" else chr(argument)
            continue
        if operation in _WITHOUT_WIDTH:
            continue
        yield from _long_enough(run)
        run = ""
        if operation in _REPEATING and argument[0] > 0:
            yield from _needed(argument[2])
        elif operation == constants.BRANCH:
            ways = tuple(tuple(_needed(branch)) for branch in argument[1])
            if all(ways):
                yield ways
    yield from _long_enough(run)


def _in_sequence(parsed: Any) -> Iterator[tuple[Any, Any]]:
    """The operations with groups dissolved; a group in which case does not matter stands for any
    text."""
    for operation, argument in parsed:
        if operation != constants.SUBPATTERN:
            yield operation, argument
        elif argument[1] & IGNORECASE:
            yield constants.ANY, None
        else:
            yield from _in_sequence(argument[-1])


def _long_enough(run: str) -> Sequence[bytes]:
    text = run.encode("utf-8", "surrogatepass")
    return (text,) if len(text) >= SHORTEST else ()
