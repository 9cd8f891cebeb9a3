"""What a row of signatures is refused for besides its schema and its examples."""

from __future__ import annotations

import re
from re import _constants as constants
from re import _parser as parser

WIDEST_REPEAT = 400
LONG_REPEAT = 40  # repeats longer than this are gaps, of which a pattern may have few
MOST_GAPS = 3
_REPEATING = (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT)


def shape_faults(row):
    """Faults that the schema cannot express: missing fields after defaults, patterns with runaway
    time, anchors that consist of digits."""
    for name in ("program", "sources", "confidence"):
        if name not in row:
            yield f"{name} is missing"
    try:
        yield from pattern_faults(row["pattern"])
    except re.error as problem:
        yield f"pattern: {problem}"
    for anchor in row["anchors"]:
        if len(re.sub(r"[0-9]", "", anchor)) < 3:
            yield f"anchor {anchor!r} has fewer than three characters that are no digits"
    if (row.get("for") or row.get("against")) and not row["examples"].get("near_miss"):
        yield "a row that speaks for or against a cause needs a near_miss"
    if row["kind"] == "folklore" and not row.get("instead"):
        yield "folklore needs an instead"


def pattern_faults(pattern):
    """Faults of a pattern: unbounded repeats, a repeat of variable length inside another, too many
    long gaps. Without these its time is bounded on any line."""
    parsed = parser.parse(pattern)
    for _low, high, inner in _repeats(parsed):
        if high is None or high > WIDEST_REPEAT:
            yield f"pattern: a repeat without bound, or of more than {WIDEST_REPEAT}"
        if (high or 0) > 16 and any(
            inner_high != inner_low and inner_high != 1
            for inner_low, inner_high, _ in _repeats(inner)
        ):
            yield "pattern: a repeat inside a repeat"
    if (gaps := _gaps(parsed)) > MOST_GAPS:
        yield f"pattern: {gaps} gaps longer than {LONG_REPEAT}, at most {MOST_GAPS}"


def _gaps(parsed):
    """The maximum number of long repeats on one path through the pattern; alternatives do not add
    up."""
    count = 0
    for operation, argument in parsed:
        if operation in _REPEATING:
            low, high, inner = argument
            count += int(high > LONG_REPEAT and high != low) + _gaps(inner)
        elif operation == constants.BRANCH:
            count += max(_gaps(branch) for branch in argument[1])
        elif operation == constants.SUBPATTERN:
            count += _gaps(argument[-1])
    return count


def _repeats(parsed):
    for operation, argument in parsed:
        if operation in _REPEATING:
            low, high, inner = argument
            yield low, None if high == constants.MAXREPEAT else high, inner
            yield from _repeats(inner)
        elif operation == constants.BRANCH:
            for branch in argument[1]:
                yield from _repeats(branch)
        elif operation == constants.SUBPATTERN:
            yield from _repeats(argument[-1])
        elif operation in (constants.ASSERT, constants.ASSERT_NOT):
            yield from _repeats(argument[1])
