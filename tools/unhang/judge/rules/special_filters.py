"""Two filters that return objects: events as bursts, and keys as the rows of a table."""

from __future__ import annotations

from typing import Any

from unhang.core.schemas.shapes import NUMBER, TEXT, Shape
from unhang.judge.rules.syntax import ExpressionError, Kind, Run, SyntaxCompiler, list_of, name_of
from unhang.judge.rules.values import Fact, Undecided, Unknown, World, plain

_EVENT = ("code", "count", "first_s", "last_s", "line", "pci_address")
BURST = Shape(
    "object",
    {
        "code": NUMBER, "codes": Shape("list", item=NUMBER), "count": NUMBER, "pci_address": TEXT,
        "pci_addresses": Shape("list", item=TEXT), "line": TEXT,
        "first_s": NUMBER, "duration_s": NUMBER, "counts": Shape("list", item=TEXT),
        "events": Shape("list", item=Shape("object", {"code": NUMBER, "count": NUMBER,
        "pci_address": TEXT})),
    },
)  # fmt: skip
"""code, pci_address and line: of the event that came first; codes and pci_addresses: of all, in the
order of time; counts: "48 x 1" for each code."""


def bursts(
    compiler: SyntaxCompiler, kind: Kind, run: Run, arguments: list[tuple[Kind, Run]]
) -> tuple[Kind, Run]:
    """events | bursts(180): groups of events, which end when no event follows for that many
    seconds. An event without a time is a group of its own."""
    item = kind.items()
    if kind.shape.kind != "list" or not all(name in item.shape.fields for name in _EVENT):
        raise ExpressionError(
            f"filter 'bursts' needs a list of events of the kernel log, not {name_of(kind)}"
        )
    if len(arguments) != 1 or arguments[0][0].shape.kind not in ("number", "any"):
        raise ExpressionError("filter 'bursts' is written bursts(180), in seconds")
    for name in _EVENT:
        compiler.note(compiler.below(item, name))
    gap = arguments[0][1]
    return list_of(Kind(BURST)), lambda world: _bursts(
        [_event(world, one) for one in world.items(run(world))], plain(gap(world))
    )


def _bursts(events: list[dict[str, Any]], gap_s: float) -> list[Fact]:
    groups: list[list[dict[str, Any]]] = []
    end = 0.0
    for event in sorted(
        (one for one in events if one["first_s"] is not None), key=lambda one: one["first_s"]
    ):
        if not groups or event["first_s"] - end > gap_s:
            groups.append([])
            end = event["first_s"]
        groups[-1].append(event)
        end = max(end, event["first_s"] if event["last_s"] is None else event["last_s"])
    groups += [[one] for one in events if one["first_s"] is None]
    return [_burst(one) for one in groups]


def _event(world: World, event: Any) -> dict[str, Any]:
    """The fields of an event, None for one that was not read; without a code nothing is decided."""
    if isinstance(event, Unknown):
        raise Undecided(event)
    read = {name: world.field(event, name) for name in _EVENT}
    known = {
        name: plain(value)
        for name, value in read.items()
        if name == "code" or not isinstance(value, Unknown)
    }
    return {**dict.fromkeys(_EVENT), "path": event.path, "count": 1, **known}


def _burst(events: list[dict[str, Any]]) -> Fact:
    def all_of(name: str) -> list[Any]:
        return list(dict.fromkeys(one[name] for one in events if one[name] is not None))

    codes, lines, addresses = map(all_of, ("code", "line", "pci_address"))
    start = min(all_of("first_s"), default=None)
    counts = {code: sum(one["count"] for one in events if one["code"] == code) for code in codes}
    value = {
        "code": codes[0], "codes": codes, "count": sum(counts.values()),
        "counts": [f"{code} x {count}" for code, count in counts.items()], "events": events,
        "pci_address": next(iter(addresses), None), "pci_addresses": addresses,
        "line": next(iter(lines), None), "first_s": start,
        "duration_s": start if start is None else max([start, *all_of("last_s")]) - start,
    }  # fmt: skip
    return Fact(value, BURST, events[0]["path"])


def rows_of(
    compiler: SyntaxCompiler, kind: Kind, run: Run, arguments: list[tuple[Kind, Run]]
) -> tuple[Kind, Run]:
    """keys | rows_of(tables.xids): the rows with these keys, in their order; keys that are not in
    the table are skipped."""
    if kind.shape.kind != "list" or not kind.items().shape.is_scalar:
        raise ExpressionError(f"filter 'rows_of' needs a list of keys, not {name_of(kind)}")
    if (
        len(arguments) != 1
        or arguments[0][0].shape.kind != "map"
        or arguments[0][0].path is not None
    ):
        raise ExpressionError("filter 'rows_of' is written rows_of(tables.NAME)")
    compiler.need_value(kind, "rows_of")
    table = arguments[0][1]
    item = arguments[0][0].shape.item

    def rows(world: World) -> list[Any]:
        found = [world.field(table(world), str(plain(key))) for key in world.items(run(world))]
        return [row for row in found if not isinstance(row, Unknown)]

    assert item is not None
    return list_of(Kind(item)), rows
