"""What several nodes have in a part that like_things compares, `name=value, name=value`: which of
its things differ, what that is worth, and how people read it. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.audit.rules.distances import distances, median
from unhang.audit.rules.like_things import NONE, TABLE, UNREAD, is_half, limits_of, weight_of

MOST_NAMES = 16


def differing_names(one: str, other: str, together: bool = False) -> set[str]:
    """The things that two values of PART have in common and that differ. Values of which one has no
    thing at all differ as a whole, and so do numbers. together: also what only one of them has."""
    if one == other:
        return set()
    ours, theirs = _by_name(one), _by_name(other)
    if together:
        pairs = {name: {ours.get(name), theirs.get(name)} for name in ours.keys() | theirs.keys()}
        return {name for name, pair in pairs.items() if len(pair) > 1 and UNREAD not in pair}
    if NONE in (one, other) or not all("=" in text for text in (one, other)):
        return {"", "-"}
    return {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]}


def far_apart(
    rows: Sequence[tuple[str, list[str]]], part: Mapping[str, Any], tables: Mapping[str, Any]
) -> list[tuple[str, list[str]]]:
    """Numbers: values of which one is far from that of most nodes, with these numbers alone; in
    front of them all others as one, with the medians."""
    read = [(_numbers(value), host) for value, hosts in rows for host in hosts]
    usual, far = _far(part, read, tables)
    found: dict[str, list[str]] = {}
    for (values, host), odd in zip(read, far, strict=True):
        found.setdefault(_named({name: values.get(name, 0.0) for name in odd}), []).append(host)
    others = found.pop("", [])
    named = sorted({name for value in found for name in _by_name(value)})
    rest = _named({name: usual[name] for name in named}) or NONE
    return ([(rest, others)] if others else []) + list(found.items())


def _far(
    part: Mapping[str, Any], read: Sequence[tuple[dict[str, float], str]], tables: Mapping[str, Any]
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """The median of each name, and of each node how far away its numbers are. A counter that a node
    does not name did not rise."""
    least, share, worse = limits_of(part["unit"], tables)
    usual: dict[str, float] = {}
    found: list[dict[str, float]] = [{} for _ in read]
    for name in part["normal"] or {name: 0 for values, _ in read for name in values}:
        rest = 0.0 if part["normal"] else None
        known = [(place, values.get(name, rest)) for place, (values, _) in enumerate(read)]
        having = [(place, value) for place, value in known if value is not None]
        usual[name] = median([value for _, value in having])
        limits = (part["normal"].get(name, least), share, worse)
        times = distances([value for _, value in having], *limits)
        for (place, _), far in zip(having, times, strict=True):
            if far:
                found[place][name] = far
    return usual, found


def _numbers(text: str) -> dict[str, float]:
    """Of the things that have one."""
    pairs = ((name, _number(value)) for name, value in _by_name(text).items())
    return {name: value for name, value in pairs if value is not None}


def _named(rates: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={rate:.10g}" for name, rate in rates.items())


def things_that_differ(
    part: Mapping[str, Any], majority: tuple[Any, list[str]] | None,
    outliers: Sequence[tuple[str, Any]],
) -> dict[str, str]:  # fmt: skip
    """The field, and the names of the things that differ on the outliers, `mlx5_3, mlx5_4`, unless
    they have none or are too many."""
    names = {
        name
        for _, value in outliers
        for name in (differing_names(majority[0], value, part["together"]) if majority else ("",))
    }
    is_named = names and "" not in names and len(names) <= MOST_NAMES
    return ({"name": ", ".join(sorted(names))} if is_named else {}) | {"field": part["field"]}


def weighed(
    part: Mapping[str, Any], majority: str | None, others: list[str], tables: Mapping[str, Any]
) -> Mapping[str, Any]:
    """A part with the severity of its row for a thing that has half of what most nodes have, if one
    of the others has so little. Without a majority nobody knows which is right. Numbers that are
    not far away are a remark."""
    row = tables.get(TABLE, {}).get(part["things"], {})
    usual = _numbers(majority or "")
    pairs = [
        (value, usual[name])
        for text in others
        for name, value in _numbers(text).items()
        if name in usual
    ]
    if part["unit"] and not part["normal"]:
        least, share, _ = limits_of(part["unit"], tables)
        times = [abs(value - most) / max(least, share * abs(most)) for value, most in pairs]
        return {**part, "severity": weight_of(max(times, default=0), part["severity"])}
    has_half = any(is_half(value, most, row) for value, most in pairs)
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
    together = part["together"]
    names = [differing_names(first, other, together) for other in others]
    shown = [set().union(*names), *names]
    known = [_by_name(text) for text in values]
    form = "{0} {1} {2}" if part["normal"] else "{0}={1}" if together else "{0} {2}={1}"
    return [
        ", ".join(
            form.format(name, value, part["field"])
            for name, value in {**own, **dict.fromkeys(differing - own.keys(), NONE)}.items()
            if name in differing and (together or name in own)
        )
        or text
        for text, own, differing in zip(values, known, shown, strict=True)
    ]


def _by_name(text: str) -> dict[str, str]:
    """`a=1, b=2`: a to 1, b to 2; nothing for numbers of things."""
    pairs = (pair.partition("=") for pair in text.split(", "))
    return {name: value for name, is_named, value in pairs if is_named}
