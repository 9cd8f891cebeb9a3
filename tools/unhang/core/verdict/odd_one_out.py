"""The odd one out among rows that repeat: the few that differ from all others, and in what. Rows
are ranks, GPUs, ports; columns are what each of them has. Values in, values out.

Nothing is odd where too few rows agree, and none where most columns differ from row to row: such
rows are not alike to begin with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

# Rows that agree, chosen so that a second odd one leaves a majority; it was not measured.
AT_LEAST = 3
TIMES_AS_MANY = 3  # rows that agree, for each one that does not

Row = Mapping[str, Hashable]


@dataclass(frozen=True)
class Odd:
    """A row that differs. differs: column -> (its value, the value of the others), for each column
    in which it differs; of numbers the median of the others."""

    row: str
    differs: Mapping[str, tuple[Any, Any]]


def odd_ones_out(
    rows: Mapping[str, Row],
    tolerances: Mapping[str, float] | None = None,
) -> list[Odd]:
    """The rows that differ from all others, in the order of `rows`; [] without a clear majority.

    tolerances: column -> how far a number may be from the median of all; other columns must be
    equal. A value of None is unknown and neither agrees nor
    differs.
    """
    columns = dict.fromkeys(name for row in rows.values() for name in row)
    usual: dict[str, Any] = {}
    compared = 0
    for name in columns:
        values = {key: row[name] for key, row in rows.items() if row.get(name) is not None}
        if len(values) < AT_LEAST:
            continue
        compared += 1
        tolerance = (tolerances or {}).get(name)
        agreed = _agreed(values, tolerance)
        if agreed is not None:
            usual[name] = (agreed, tolerance)
    if len(usual) * 2 <= compared:
        return []
    found = []
    for key, row in rows.items():
        differs = {
            name: (row[name], value)
            for name, (value, tolerance) in usual.items()
            if row.get(name) is not None and not _agree(row[name], value, tolerance)
        }
        if differs:
            found.append(Odd(key, differs))
    return found


def _agreed(values: Mapping[str, Any], tolerance: float | None) -> Any | None:
    """The value of the majority of a column, None if it is not clear."""
    if tolerance is None:
        value, count = Counter(values.values()).most_common(1)[0]
    else:
        value = median(values.values())
        count = sum(_agree(one, value, tolerance) for one in values.values())
    others = len(values) - count
    return value if count >= AT_LEAST and count >= TIMES_AS_MANY * others else None


def _agree(one: Any, other: Any, tolerance: float | None) -> bool:
    return one == other if tolerance is None else abs(one - other) <= tolerance
