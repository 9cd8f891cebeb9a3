"""Numbers of a node's parts beside those of its last run. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from unhang.judge.rules import like_things
from unhang.judge.rules.distances import ALIKE, distances
from unhang.judge.rules.values import Fact

READS = frozenset([("node", "earlier", "numbers")])


class Number(NamedTuple):
    """What a part of a row of like_things has in a field. name: by which the next run knows it."""

    row: Mapping[str, Any]
    field: str
    name: str
    part: like_things.Thing
    value: float


def numbers_of(sections: Any, tables: Mapping[str, Any], why_null: Any) -> Iterator[Number]:
    """Of the rows that are compared with the last run, those of one field together."""
    for row in tables.get(like_things.TABLE, {}).values():
        if row["last_run"]:
            parts, _ = like_things.things_of(sections, row, tables, why_null)
            for field in like_things.fields_of(row, tables):
                for part in parts or ():
                    own = part.given("uuid", tables).value or like_things.name_of(part, row, tables)
                    if (value := part.given(field, tables).value) is not None:
                        yield Number(row, field, f"{row['things']} {own} {field}", part, value)


def moved(sections: Any, tables: Mapping[str, Any], why_null: Any) -> Iterator[Fact]:
    """The numbers that are worse than in the node's last run, and far from that, as Fact of the
    shape UNLIKE."""
    before = getattr(getattr(sections.node, "earlier", None), "numbers", None) or {}
    now = numbers_of(sections, tables, why_null) if before else ()
    known = [one for one in now if one.name in before]
    for (row, field), alike in groupby(known, lambda one: one[:2]):
        unit = like_things.unit_of(field, row, tables) or "number"
        limits = like_things.limits_of(unit, tables)
        same = [(one, before[one.name]) for one in alike]
        far = [_worsened(one.value, then, *limits) for one, then in same]
        if like_things.shape_of_field(row["list"], field).sample:
            # it moves by itself: farther than its like, or a remark
            far = [min(1.0, one) for one in far]
            if len(same) >= ALIKE:
                far = distances([one.value - then for one, then in same], *limits)
        for times, (one, then) in zip(far, same, strict=True):
            if times >= 1:
                weight = like_things.weight_of(times, row["severity"])
                yield like_things.unlike_fact(one.part, row, field, tables, then, 0, weight)


def _worsened(now: float, then: float, least: float, share: float, worse: str) -> float:
    """How often a number is as much worse than before as it may be."""
    return (now - then if worse == "higher" else then - now) / max(least, share * then)
