"""What several nodes have in a part that like_things compares, `name field=value, …`: which of its
things differ, what that is worth, and how people read it. Values in, values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from unhang.core.schemas.shapes import Shape
from unhang.judge.rules.costs import COSTS
from unhang.judge.rules.distances import distances, median
from unhang.judge.rules.like_things import (
    NONE,
    TABLE,
    UNREAD,
    is_half,
    is_quiet,
    limits_of,
    shape_of_field,
    weight_of,
)
from unhang.judge.rules.rules import SEVERITIES

MOST_NAMES = 16
MOST_DIFFERENCES = 8  # findings of one comparison
GONE, THERE = "not there", "there"  # a thing of which all nodes should have one
Rows = Sequence[tuple[Any, list[str]]]  # (value, hosts)
Values = dict[str, str]  # by name


def compared(
    rows: Rows, part: Mapping[str, Any], tables: Mapping[str, Any], is_tied: bool = False
) -> list[Rows]:
    """The differences between nodes, each as what most have and what others have: one for each set
    of names that some have otherwise, and one for all numbers that are far away. Names of which no
    value is on most nodes are a difference of all; it is not reported where nodes may be of two
    sorts (is_quiet). is_tied: what the first row has is right, however few have it."""
    row = tables.get(TABLE, {}).get(part["things"], {})
    own = [_by_name(value) for value, _ in rows]
    if part["together"] and row.get("slot"):
        own = [{f"{_thing(name)}:": THERE for name in one} | one for one in own]
    usual: Values = {}
    odd, split = [Values() for _ in rows], [Values() for _ in rows]
    seen = [0] * len(rows)
    for name in dict.fromkeys([*part["normal"], *(name for one in own for name in one)]):
        given = [one.get(name, _missing(name, part, row)) for one in own]
        weights = [
            0 if one == UNREAD else len(on) for one, (_, on) in zip(given, rows, strict=True)
        ]
        if is_tied:
            weights[0] *= 1 + sum(weights)
        if part["unit"]:
            usual[name], is_odd = _far(given, weights, part, name, tables)
            into = odd
        else:
            value, is_odd = _unequal(given, weights)
            usual |= {} if value is None else {name: value}
            into = split if value is None else odd
        for place, one in enumerate(given):
            seen[place] += weights[place] > 0
            if is_odd[place]:
                into[place][name] = one
    if row.get("elsewhere"):  # a node that has all of them otherwise is in another place
        odd = [{} if len(one) == seen[place] else one for place, one in enumerate(odd)]
    found = _differences(_grouped(odd, rows), usual, bool(part["unit"]))
    return found + ([_grouped(split, rows)] if any(split) and not is_quiet(row) else [])


def _missing(name: str, part: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """What a node has in a name that it does not give. A counter did not rise."""
    if part["normal"]:
        return "0"
    if name.endswith(":"):
        return GONE
    return NONE if part["together"] and not row.get("slot") else UNREAD


def _unequal(given: Sequence[str], weights: Sequence[int]) -> tuple[str | None, list[bool]]:
    """What more than half of the nodes have, else None, and which have not."""
    votes, pairs = Counter[str](), [*zip(given, weights, strict=True)]
    for one, weight in pairs:
        votes[one] += weight
    value, most = votes.most_common(1)[0]
    usual = value if most * 2 > votes.total() else None
    return usual, [weight > 0 and one != usual for one, weight in pairs]


def _far(
    given: Sequence[str], weights: Sequence[int], part: Mapping[str, Any], name: str,
    tables: Mapping[str, Any],
) -> tuple[str, list[bool]]:  # fmt: skip
    """The median of a name, and which numbers are far from it."""
    least, share, worse = limits_of(part["unit"], tables)
    numbers = [_number(one) for one in given]
    known = [
        (place, one)
        for place, one in enumerate(numbers)
        if one is not None
        for _ in range(weights[place])
    ]
    values = [one for _, one in known]
    times = distances(values, part["normal"].get(name, least), share, worse)
    far = {place for (place, _), one in zip(known, times, strict=True) if one}
    middle = f"{median(values):.10g}" if values else NONE
    return middle, [place in far for place in range(len(given))]


def _grouped(odd: Sequence[Values], rows: Rows) -> list[tuple[str, list[str]]]:
    """Nodes with the same values; those without any first."""
    found: dict[str, list[str]] = {}
    for one, (_, hosts) in zip(odd, rows, strict=True):
        found.setdefault(_text_of(one), []).extend(hosts)
    return sorted(found.items(), key=lambda row: (bool(row[0]), -len(row[1]), row[0]))


def _differences(rows: Rows, usual: Values, is_one: bool) -> list[Rows]:
    """What most nodes have and what others have: one for each of these values, the rest as one."""
    odd = [(value, hosts) for value, hosts in rows if value]
    single = 0 if is_one else len(odd) if len(odd) <= MOST_DIFFERENCES else MOST_DIFFERENCES - 1
    found: list[Rows] = []
    for several in [*([one] for one in odd[:single]), odd[single:]]:
        names = {name: usual[name] for value, _ in several for name in _by_name(value)}
        apart = {host for _, hosts in several for host in hosts}
        rest = [host for _, hosts in rows for host in hosts if host not in apart]
        found += [[*([(_text_of(names), rest)] if rest else []), *several]] if several else []
    return found


def _text_of(named: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(named.items()))


def _thing(name: str) -> str:
    return name.rpartition(" ")[0]


def _shape_of(name: str, row: Mapping[str, Any]) -> Shape:
    return shape_of_field(row["list"], "" if name.endswith(":") else name.rpartition(" ")[2])


def things_that_differ(
    part: Mapping[str, Any], majority: tuple[Any, list[str]] | None,
    outliers: Sequence[tuple[str, Any]],
) -> dict[str, str]:  # fmt: skip
    """The field, and the names of the things that differ on the outliers, `mlx5_3, mlx5_4`, unless
    they have none or are too many. Without a majority nobody knows."""
    names = {
        name.removesuffix(f" {part['field']}").rstrip(":")
        for _, value in (outliers if majority else ())
        for name in _by_name(value)
    }
    is_named = names and len(names) <= MOST_NAMES
    return ({"name": ", ".join(sorted(names))} if is_named else {}) | {"field": part["field"]}


def weighed(
    part: Mapping[str, Any], majority: str | None, others: list[str], of: int,
    tables: Mapping[str, Any],
) -> Mapping[str, Any]:  # fmt: skip
    """A part with the severity of its row for a thing that has half of what most nodes have, if one
    of the others has so little. Without a majority nobody knows which is right, and of more than
    two nodes it is a remark, as are numbers that are not far away. A setting or place is worth what
    the schema says, a step less where many nodes have it (of: how many are compared), and a remark
    where it is more than the others have."""
    row = tables.get(TABLE, {}).get(part["things"], {})
    if row and majority is None and of > 2:  # nodes of two sorts
        return {**part, "severity": "info"}
    most = _by_name(majority or "")
    if is_quiet(row):
        worth = {
            COSTS[cost][0] if (cost := _shape_of(name, row).costs) else part["severity"]
            for text in others
            for name in _by_name(text)
            if most.get(name) != GONE
        }
        worst = min(map(SEVERITIES.index, ["info", *worth]))
        is_many = len(others) > 1 and len(others) * 4 > of
        return {**part, "severity": SEVERITIES[min(worst + is_many, 3)]}
    pairs = [
        (own, usual)
        for text in others
        for name, value in _by_name(text).items()
        if (own := _number(value)) is not None
        and (usual := _number(most.get(name, ""))) is not None
    ]
    if part["unit"] and not part["normal"]:
        least, share, _ = limits_of(part["unit"], tables)
        times = [abs(value - usual) / max(least, share * abs(usual)) for value, usual in pairs]
        return {**part, "severity": weight_of(max(times, default=0), part["severity"])}
    has_half = any(is_half(value, usual, row) for value, usual in pairs)
    return {**part, "severity": row["half"]} if has_half else part


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def shown_parts(part: Mapping[str, Any], values: list[str]) -> list[str]:
    """Each value for people: `GPU 0 to GPU 7 power_limit_w=500` for things with the same value of a
    field, of counters what they count; a value without names as it is."""
    found = []
    for text in values:
        alike: dict[tuple[str, str], list[str]] = {}
        for name, value in _by_name(text).items():
            thing, _, field = name.rpartition(" ")
            alike.setdefault((field, value), []).append(thing)
        form = f"{{}} {{}} {part['field']}" if part["normal"] else "{}={}"
        shown = [
            " ".join(filter(None, [_ends(things), form.format(*one).replace(":=", " ")]))
            for one, things in alike.items()
        ]
        found.append(", ".join(shown) or text)
    return found


def _ends(things: Sequence[str]) -> str:
    return ", ".join(things) if len(things) < 3 else f"{things[0]} to {things[-1]}"


def _by_name(text: str) -> Values:
    """`a=1, b=2`: a to 1, b to 2."""
    pairs = (pair.partition("=") for pair in text.split(", "))
    return {name: value for name, is_named, value in pairs if is_named}
