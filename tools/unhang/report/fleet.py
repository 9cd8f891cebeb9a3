"""The map of a fleet: one cell per node, a panel per set of inventory groups, laid out in the units of an SVG.

A cell's shape says what its colour says. Small panels carry the host names, large ones only shapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unhang.nodeset import fold_hosts
from unhang.report.folding import SEVERITIES, Fold
from unhang.report.phrases import STATUS_WORDS
from unhang.report.run import NodeSummary
from unhang.text import counted, visible

PANEL_WIDTH = 336
_UNGROUPED = ("all", "ungrouped")
KINDS = (*SEVERITIES, "down", "unknown", "ok")
KIND_WORDS = {**{severity: severity for severity in SEVERITIES}, "down": "not read", "unknown": "unknown", "ok": "nothing found"}


@dataclass(frozen=True)
class Cell:
    host: str
    kind: str  # one of KINDS
    x: float
    y: float
    size: float
    label: str  # empty in a large panel
    tip: str
    anchor: str  # id of the node's row


@dataclass(frozen=True)
class Panel:
    name: str
    hosts: tuple[str, ...]
    told: str  # `8 nodes: 2 critical, 6 nothing found`
    width: float
    height: float
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Standing:
    """How one node stands: the worst that was found on it, and which folds it is part of."""

    kind: str
    folds: tuple[int, ...]  # numbers of the folds, 1 is the first on the page
    unknown: int


def standings(nodes: Sequence[NodeSummary], folds: Sequence[Fold], unknown_by_host: Mapping[str, int]) -> dict[str, Standing]:
    """Host -> how it stands."""
    numbers: dict[str, list[int]] = {node.host: [] for node in nodes}
    for number, fold in enumerate(folds, start=1):
        for host in fold.hosts:
            numbers.setdefault(host, []).append(number)
    status = {node.host: node.status for node in nodes}
    told = {}
    for host, found in numbers.items():
        unknown = unknown_by_host.get(host, 0)
        kind = "ok" if not unknown else "unknown"
        if found:
            kind = str(folds[found[0] - 1].example["severity"])
        if status.get(host, "ok") != "ok":
            kind = "down"
        told[host] = Standing(kind, tuple(found), unknown)
    return told


def panels(nodes: Sequence[NodeSummary], folds: Sequence[Fold], told: Mapping[str, Standing], anchors: Mapping[str, str]) -> list[Panel]:
    """Nodes by the inventory groups that tell them apart, the most troubled panel first."""
    everywhere = set.intersection(*[set(node.groups) for node in nodes]) if len(nodes) > 1 else set()
    members: dict[tuple[str, ...], list[NodeSummary]] = {}
    for node in nodes:
        own = tuple(group for group in sorted(node.groups) if group not in everywhere and group not in _UNGROUPED)
        members.setdefault(own, []).append(node)
    shared = ", ".join(visible(group, 40) for group in sorted(everywhere - set(_UNGROUPED))) or "all nodes"
    made = [_panel(", ".join(visible(group, 40) for group in own[:4]) or shared, group, folds, told, anchors) for own, group in members.items()]
    return sorted(made, key=lambda panel: (min(KINDS.index(cell.kind) for cell in panel.cells), panel.name))


def _panel(name: str, nodes: list[NodeSummary], folds: Sequence[Fold], told: Mapping[str, Standing], anchors: Mapping[str, str]) -> Panel:
    columns, step_x, step_y, size = _grid(len(nodes))
    cells = []
    for place, node in enumerate(nodes):
        stands = told[node.host]
        label = _label(node.host) if columns <= 3 else ""
        x, y = (place % columns) * step_x, (place // columns) * step_y
        cells.append(Cell(node.host, stands.kind, round(x, 1), round(y, 1), size, label, _tip(node, stands, folds), anchors[node.host]))
    counts = {kind: sum(cell.kind == kind for cell in cells) for kind in KINDS}
    summary = ", ".join(f"{count:,} {KIND_WORDS[kind]}" for kind, count in counts.items() if count)
    rows = -(-len(nodes) // columns)
    return Panel(name, tuple(node.host for node in nodes), f"{counted(len(nodes), 'node')}: {summary}", PANEL_WIDTH, rows * step_y, tuple(cells))


def _grid(count: int) -> tuple[int, float, float, float]:
    """(columns, step across, step down, side of the glyph) for so many nodes."""
    if count <= 24:
        return 3, PANEL_WIDTH / 3, 30, 18
    columns = 14 if count <= 140 else 20 if count <= 400 else 28
    step = PANEL_WIDTH / columns
    return columns, step, step, round(step * 0.82, 1)


def _label(host: str) -> str:
    """The host's own name, its end kept when it is too long: numbers stand there."""
    name = visible(host.split(".")[0] if not host.replace(".", "").isdigit() else host, 64)
    return name if len(name) <= 12 else "…" + name[-11:]


def _tip(node: NodeSummary, stands: Standing, folds: Sequence[Fold]) -> str:
    name = fold_hosts([node.host])
    if node.status != "ok":
        return f"{name}: {STATUS_WORDS.get(node.status, 'not read')}"
    if not stands.folds:
        return f"{name}: {counted(stands.unknown, 'judgement')} unknown" if stands.unknown else f"{name}: nothing found"
    worst = visible(folds[stands.folds[0] - 1].example.get("title"), 80)
    return f"{name}: {stands.kind}: {worst}" + (f", and {len(stands.folds) - 1} more" if len(stands.folds) > 1 else "")
