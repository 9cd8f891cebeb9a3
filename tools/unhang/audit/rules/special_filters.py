"""Two filters that return objects: events as bursts, and keys as the rows of a table."""

from __future__ import annotations

from typing import Any

from unhang.audit.rules.syntax import ExpressionError, Kind, Run, SyntaxCompiler, list_of, name_of
from unhang.audit.rules.values import Fact, Undecided, Unknown, World, plain
from unhang.core.schemas.shapes import NUMBER, TEXT, Shape

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
    item = kind.items() if kind.shape.kind == "list" else kind
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
        world, world.items(run(world)), plain(gap(world))
    )


def _bursts(world: World, events: list[Any], gap_s: float) -> list[Fact]:
    timed: list[Any] = []
    alone: list[Any] = []
    for event in events:
        if isinstance(event, Unknown):
            raise Undecided(event)
        first = world.field(event, "first_s")
        (alone if isinstance(first, Unknown) else timed).append(event)
    groups: list[list[Any]] = []
    end = 0.0
    for event in sorted(timed, key=lambda one: plain(world.field(one, "first_s"))):
        first, last = plain(world.field(event, "first_s")), world.field(event, "last_s")
        if not groups or first - end > gap_s:
            groups.append([])
            end = first
        groups[-1].append(event)
        end = max(end, first if isinstance(last, Unknown) else plain(last))
    return [_burst(world, group) for group in (*groups, *([event] for event in alone))]


def _burst(world: World, events: list[Any]) -> Fact:
    def first_field_of(name: str) -> Any:
        return next(
            (
                plain(one)
                for one in (world.field(event, name) for event in events)
                if not isinstance(one, Unknown)
            ),
            None,
        )

    def all_of(name: str) -> list[Any]:
        found = (world.field(event, name) for event in events)
        return list(dict.fromkeys(plain(one) for one in found if not isinstance(one, Unknown)))

    # an event without a code leaves the burst undecided
    codes = list(dict.fromkeys(plain(world.field(event, "code")) for event in events))
    rows = [
        {
            "code": plain(world.field(event, "code")),
            "count": _count(world, event),
            "pci_address": _field_of(world, event, "pci_address"),
        }
        for event in events
    ]
    counts = {code: sum(row["count"] for row in rows if row["code"] == code) for code in codes}
    start = first_field_of("first_s")
    end = max(
        (
            plain(one)
            for one in (world.field(event, "last_s") for event in events)
            if not isinstance(one, Unknown)
        ),
        default=start,
    )
    value = {
        "code": codes[0], "codes": codes, "count": sum(counts.values()),
        "counts": [f"{code} x {count}" for code, count in counts.items()], "events": rows,
        "pci_address": first_field_of("pci_address"), "pci_addresses": all_of("pci_address"),
        "line": first_field_of("line"),
        "first_s": start, "duration_s": None if start is None else max(0, end - start),
    }  # fmt: skip
    return Fact(value, BURST, events[0].path)


def _field_of(world: World, event: Any, name: str) -> Any:
    value = world.field(event, name)
    return None if isinstance(value, Unknown) else plain(value)


def _count(world: World, event: Any) -> Any:
    """How often the event came; once where that was not read."""
    count = _field_of(world, event, "count")
    return 1 if count is None else count


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
