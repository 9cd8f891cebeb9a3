"""A comparison for people and for other programs. Text from nodes passes through `visible`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unhang.audit.compare.comparing import Comparison, Values
from unhang.audit.compare.sides import Side
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.secrets_in_text import masked_document
from unhang.core.text import counted, visible, wrapped

MOST_VALUES = 6  # values of one side; a longer list would only show that everything differs
LONGEST_VALUE = 160
LONGEST_NODES = 60
COLUMNS = ("fact", "a", "b")


def without_secrets_in(found: Comparison) -> Comparison:
    """The comparison with its values masked; those of a side that look alike then are one."""
    return replace(
        found,
        differences=tuple(
            replace(one, a=_masked(one.fact, one.a), b=_masked(one.fact, one.b))
            for one in found.differences
        ),
    )


def _masked(fact: str, values: Values) -> Values:
    masked: dict[str, tuple[str, ...]] = {}
    for value, hosts in values.items():
        shown = masked_document({fact: value})[fact]
        masked[shown] = (*masked.get(shown, ()), *hosts)
    return masked


def render_comparison(shown: Comparison, width: int) -> list[str]:
    """The two sides, each fact that differs with the values of both, and what could not be
    compared."""
    lines = [*wrapped(_side("A", shown.a), width, 3), *wrapped(_side("B", shown.b), width, 3), ""]
    for one in shown.differences:
        lines += wrapped(visible(one.fact, 300), width, 2)
        lines += [
            line
            for label, values in (("A", one.a), ("B", one.b))
            for line in _values(label, values, width)
        ]
    lines += [""] if shown.differences else []
    lines.append(
        f"{counted(shown.compared, 'fact')} compared: {len(shown.differences) or 'none'}"
        f" differ{'s' if len(shown.differences) == 1 else ''}"
    )
    if shown.unread:
        lines += wrapped(
            f"{counted(shown.unread, 'fact')} not compared: a side could not read them", width
        )
    return lines


def _side(label: str, side: Side) -> str:
    if side.environment is not None:
        return (
            f"{label}  {visible(side.name, 300)}: {counted(len(side.environment), 'variable')} that"
            " concern communication"
        )
    unread = f", and {counted(len(side.unread), 'node')} not read" if side.unread else ""
    return f"{label}  {visible(side.name, 300)}: {counted(len(side.hosts), 'node')}{unread}"


def _values(label: str, values: Values, width: int) -> list[str]:
    ordered = sorted(values.items(), key=lambda row: (-len(row[1]), row[0]))
    texts = [
        f"{visible(value, LONGEST_VALUE)}{_on_nodes(hosts, len(ordered))}"
        for value, hosts in ordered[:MOST_VALUES]
    ]
    texts += (
        [f"and {counted(len(ordered) - MOST_VALUES, 'more value')}"]
        if len(ordered) > MOST_VALUES
        else []
    )
    return [
        f"  {label if not place else ' '}  {line}"
        for place, line in enumerate(wrapped("; ".join(texts), max(width - 5, 30)))
    ]


def _on_nodes(hosts: tuple[str, ...], values: int) -> str:
    if values == 1 or not hosts:
        return ""
    return f" ({shortened(fold_hosts(hosts), LONGEST_NODES)}{f', {len(hosts):,} nodes' if len(hosts) > 1 else ''})"  # noqa: E501


def rows_of(shown: Comparison, is_flat: bool) -> list[dict[str, Any]]:
    """{fact, a, b}: each side's values as [{value, nodes}]; is_flat: in one cell, for CSV."""
    side = _cell if is_flat else _plain
    return [{"fact": one.fact, "a": side(one.a), "b": side(one.b)} for one in shown.differences]


def _plain(values: Values) -> list[dict[str, Any]]:
    return [{"value": value, "nodes": list(hosts)} for value, hosts in sorted(values.items())]


def _cell(values: Values) -> str:
    return "; ".join(sorted(values))
