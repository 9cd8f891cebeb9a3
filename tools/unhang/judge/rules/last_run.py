"""Numbers of a node's parts beside those of its last run. Values in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unhang.judge.rules import like_things
from unhang.judge.rules.distances import ALIKE, distances
from unhang.judge.rules.values import Fact

READS = frozenset([("node", "earlier", "numbers")])


def numbers_of(
    sections: Any, tables: Mapping[str, Any], why_null: Any
) -> Iterator[tuple[Mapping[str, Any], str, dict[str, tuple[like_things.Thing, float]]]]:
    """Speeds and widths, and what is compared by its distance, which no person sets: (row, field,
    {name by which a part is known again: the part, its number})."""
    for row in tables.get(like_things.TABLE, {}).values():
        is_one = like_things.EVERY in row["fields"] or {"half", "peers"} <= row.keys()
        things = like_things.things_of(sections, row, tables, why_null)[0] if is_one else None
        for field in like_things.fields_of(row, tables) if things else ():
            found = {}
            for one in things or ():
                if (value := one.given(field, tables).value) is not None:
                    part = one.given("uuid", tables).value or like_things.name_of(one, row, tables)
                    found[f"{row['things']} {part} {field}"] = one, value
            yield row, field, found


def moved(sections: Any, tables: Mapping[str, Any], why_null: Any) -> Iterator[Fact]:
    """The numbers that are worse than in the node's last run, and far from that, as Fact of the
    shape UNLIKE. What moves by itself has to move farther than its like; without such, it is a
    remark."""
    before = getattr(getattr(sections.node, "earlier", None), "numbers", None) or {}
    for row, field, found in numbers_of(sections, tables, why_null) if before else ():
        unit = like_things.unit_of(field, row, tables) or "number"
        least, share, worse = like_things.limits_of(unit, tables)
        same = [(*one, before[name]) for name, one in found.items() if name in before]
        far = distances([value - then for _, value, then in same], least, share, worse)
        is_steady = not like_things.shape_of_field(row["list"], field).sample
        if is_steady or len(same) < ALIKE:
            sign = 1 if worse == "higher" else -1
            far = [sign * (value - then) / max(least, share * then) for _, value, then in same]
        for times, (one, _, then) in zip(far, same, strict=True):
            if times >= 1:
                is_remark = not is_steady and len(same) < ALIKE
                weight = like_things.weight_of(0 if is_remark else times, row["severity"])
                yield like_things.unlike_fact(one, row, field, tables, then, 0, weight)
