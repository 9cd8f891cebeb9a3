"""Whether a value is valid for a variable of NCCL or torch, by its row in the catalogue's tables.
lint, policies and profiles all use this."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unhang.core.catalogue.levels import LEVELS, SOURCE, is_older_nccl, level_fault

_ALGOS = {"RING", "TREE", "COLLNETCHAIN", "COLLNETDIRECT", "NVLS", "NVLSTREE", "PAT"}
_OLD_ALGOS = {"COLLNET"}  # an alias that releases before 2.24 accept
_PROTOS = {"LL", "LL128", "SIMPLE"}
_NAMED = {"NCCL_ALGO": _ALGOS, "NCCL_PROTO": _PROTOS}
_NO_NUMBERS = {"TRUE", "FALSE", "YES", "NO", "ON", "OFF"}
_MOST_SHOWN = 12


@dataclass(frozen=True)
class ValueFault:
    """what: the fault of the value. allowed: the valid values. source: an address, if it differs
    from the row's."""

    what: str
    allowed: str
    source: str | None = None


def value_fault(
    name: str, row: Mapping[str, Any], value: str, release: str | None = None
) -> ValueFault | None:
    """What is wrong with a variable's value, or None. release: of NCCL, None if it is unknown."""
    if value == "":
        return ValueFault("an empty value", "a value, or no line at all")
    if name in LEVELS:
        fault = level_fault(value, release)
        return ValueFault(*fault, SOURCE) if fault else None
    if row.get("values"):
        known = {str(one).upper() for one in row["values"]}
        allowed = f"one of {', '.join(map(str, row['values'][:_MOST_SHOWN]))}"
        return (
            None
            if value.upper() in known
            else ValueFault(f"{value!r} is none of its values", allowed)
        )
    if "least" in row or "most" in row:
        return _range_fault(row, value)
    if name in _NAMED:
        old = _OLD_ALGOS if release and is_older_nccl(release, "2.24") else set()
        bad = [token for token in names_in(value) if token.upper() not in _NAMED[name] | old]
        return (
            ValueFault(
                f"{bad[0]!r} is none of its words; since 2.24 that fails the job",
                f"one of {', '.join(sorted(_NAMED[name]))}",
            )
            if bad
            else None
        )
    if str(row.get("default", "")) in ("0", "1") and value.upper() in _NO_NUMBERS:
        return ValueFault(f"{value!r} is read as a number, which it is not", "0 or 1")
    return None


def _range_fault(row: Mapping[str, Any], value: str) -> ValueFault | None:
    low, high = row.get("least"), row.get("most")
    ends = (
        f"from {low} to {high}"
        if low is not None and high is not None
        else f"from {low} on"
        if low is not None
        else f"up to {high}"
    )
    number = whole_number(value)
    if number is None:
        return ValueFault(f"{value!r} is no number", f"a whole number {ends}")
    inside = (low is None or number >= low) and (high is None or number <= high)
    return (
        None if inside else ValueFault(f"{value!r} is not in its range", f"a whole number {ends}")
    )


def whole_number(value: str) -> int | None:
    """A whole number in decimal, or in another base with its prefix (0x…); None for any other
    text."""
    try:
        return int(value, 0)
    except ValueError:
        return None


def names_in(value: str) -> list[str]:
    """The names in a value: Ring and Tree in "^Ring,Tree" and in
    "allreduce:Ring;broadcast:Tree"."""
    words = re.split("[;,]", re.sub("[^;]*:", "", value))
    return [found for one in words if (found := one.strip().lstrip("^"))]
