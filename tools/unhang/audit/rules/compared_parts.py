"""What several nodes have in a part that like_things compares, `name=value, name=value`: which of
its things differ, what that is worth, and how people read it. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.audit.rules.like_things import NONE, TABLE, is_half
from unhang.audit.rules.rising_counters import median

MOST_NAMES = 16
FAR = 100  # times the median of the peers; our own number, as decision 0014 has it


def differing_names(one: str, other: str) -> set[str]:
    """The things that two values of PART have in common and that differ. Values of which one has no
    thing at all differ as a whole, and so do numbers."""
    if one == other:
        return set()
    ours, theirs = _by_name(one), _by_name(other)
    if NONE in (one, other) or not all("=" in text for text in (one, other)):
        return {"", "-"}
    return {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]}


def far_apart(
    rows: Sequence[tuple[str, list[str]]], normal: Mapping[str, float]
) -> list[tuple[str, list[str]]]:
    """Values of counters: those of which one is above its normal rate and FAR above the median of
    all nodes, with these counters alone; in front of them all others as one, with the medians."""
    read = [({name: _number(count) or 0.0 for name, count in _by_name(value).items()}, hosts)
            for value, hosts in rows]  # fmt: skip
    usual = {
        name: median([rates.get(name, 0.0) for rates, hosts in read for _ in hosts])
        for name in normal
    } if read else {}  # fmt: skip
    found: dict[str, list[str]] = {}
    others: list[str] = []
    for rates, hosts in read:
        far = {
            name: rate
            for name, rate in rates.items()
            if rate > max(normal.get(name, rate), FAR * usual.get(name, rate))
        }
        if far:
            found.setdefault(_named(far), []).extend(hosts)
        else:
            others += hosts
    named = {name for value in found for name in _by_name(value)}
    rest = _named({name: usual[name] for name in sorted(named)}) or NONE
    return ([(rest, others)] if others else []) + list(found.items())


def _named(rates: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={rate:.0f}" for name, rate in rates.items())


def things_that_differ(
    field: str, majority: tuple[Any, list[str]] | None, outliers: Sequence[tuple[str, Any]]
) -> dict[str, str]:
    """The field, and the names of the things that differ on the outliers, `mlx5_3, mlx5_4`, unless
    they have none or are too many."""
    names = {
        name
        for _, value in outliers
        for name in (differing_names(majority[0], value) if majority else ("",))
    }
    is_named = names and "" not in names and len(names) <= MOST_NAMES
    return ({"name": ", ".join(sorted(names))} if is_named else {}) | {"field": field}


def weighed(
    part: Mapping[str, Any], majority: str | None, others: list[str], tables: Mapping[str, Any]
) -> Mapping[str, Any]:
    """A part with the severity of its row for a thing that has half of what most nodes have, if one
    of the others has so little. Without a majority nobody knows which is right."""
    row = tables.get(TABLE, {}).get(part["things"], {})
    usual = _by_name(majority or "")
    has_half = any(
        is_half(_number(value), _number(usual.get(name, "")), row)
        for text in others
        for name, value in _by_name(text).items()
    )
    return {**part, "severity": row["half"]} if has_half else part


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def shown_parts(part: Mapping[str, Any], values: list[str]) -> list[str]:
    """Each value for people: what differs from the first one, as `bond0 mtu=9000`; of the first
    one, what any other differs in. Values without names stay as they are."""
    first, *others = values
    names = [differing_names(first, other) for other in others]
    shown = [set().union(*names), *names]
    return [
        ", ".join(
            f"{name} {value} {part['field']}"
            if part["normal"]
            else f"{name} {part['field']}={value}"
            for name, value in _by_name(text).items()
            if name in differing
        )
        or text
        for text, differing in zip(values, shown, strict=True)
    ]


def _by_name(text: str) -> dict[str, str]:
    """`a=1, b=2`: a to 1, b to 2; nothing for numbers of things."""
    pairs = (pair.partition("=") for pair in text.split(", "))
    return {name: value for name, is_named, value in pairs if is_named}
