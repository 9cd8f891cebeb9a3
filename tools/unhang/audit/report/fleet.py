"""The map of a fleet: one cell per node, all of one size, a panel per set of inventory groups and
rack.

A cell's shape has the same meaning as its colour. The cells of a small fleet carry the host names,
those of a large one only shapes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from unhang.audit.report.folding import Fold
from unhang.audit.report.phrases import STATUS_WORDS
from unhang.audit.report.run import NodeSummary
from unhang.core.nodeset import fold_hosts
from unhang.core.run.findings import NOT_A_GPU_NODE, PARTLY_READ
from unhang.core.run.run_input import natural
from unhang.core.text import counted, visible

PANEL_WIDTH = 336
COLUMNS, STEP_X, STEP_Y = 3, PANEL_WIDTH / 3, 30
# number of nodes; the map of a larger fleet has no names and uses the full width of the page
MOST_NAMED = 60
_UNGROUPED = ("all", "ungrouped")
# In the order of harm: a node that does not answer comes before one with a lesser finding. A remark
# (info) is no harm: its node is healthy.
KIND_WORDS = {
    "critical": "critical",
    "down": "unread",
    "error": "error",
    "warning": "warning",
    "cpu": NOT_A_GPU_NODE,
    "partly": PARTLY_READ,
    "unknown": "healthy, not all known",
    "ok": "healthy",
}
KINDS = (*KIND_WORDS,)
HEALTHY = ("unknown", "ok")  # what the verdicts of nodes call healthy
_RACK = re.compile(
    r"(?i)(?:rack|row|pod|cell|block|leaf|switch|su|zone|room)s?[-_.]?[0-9]{1,9}[a-z]?\Z"
)


@dataclass(frozen=True)
class Cell:
    host: str
    kind: str  # one of KINDS
    x: float
    y: float
    label: str  # empty in a large fleet
    tip: str
    anchor: str  # id of the node's row


@dataclass(frozen=True)
class Panel:
    name: str
    hosts: tuple[str, ...]
    summary: str  # `8 nodes: 2 critical, 6 healthy`
    brief: str  # short form: `2 critical`
    named: bool  # whether the names are beside the cells
    height: float
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Standing:
    """The state of one node: its worst finding, and its folds."""

    kind: str
    folds: tuple[int, ...]  # numbers of the folds, 1 is the first on the page
    unknown: int
    worst: int = 0  # number of the fold that determines the kind, 0 for none


def standings(
    nodes: Sequence[NodeSummary],
    folds: Sequence[Fold],
    hosts_of_folds: Sequence[Collection[str]],
    unknown_by_host: Mapping[str, int],
    verdicts: Mapping[str, str],
) -> dict[str, Standing]:
    """Host -> its state. hosts_of_folds: the nodes to which each fold counts; verdicts: host -> its
    verdict, as the first screen counts it."""
    ranks = [_rank(str(fold.example["severity"])) for fold in folds]
    numbers: dict[str, list[int]] = {node.host: [] for node in nodes}
    for number, hosts in enumerate(hosts_of_folds, start=1):
        for host in hosts:
            numbers.setdefault(host, []).append(number)
    status = {node.host: node.status for node in nodes}
    standing_of = {}
    worded = {KIND_WORDS[one]: one for one in KINDS if one not in HEALTHY}
    for host, found in numbers.items():
        unknown = unknown_by_host.get(host, 0)
        worst = min(found, key=lambda number: ranks[number - 1], default=0)
        verdict = verdicts.get(host, "")
        kind = "unknown" if unknown and not worst else "ok"
        kind = worded.get(verdict, kind)
        standing_of[host] = Standing(
            "down" if status.get(host, "ok") != "ok" else kind, tuple(found), unknown, worst
        )
    return standing_of


def _rank(kind: str) -> int:
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def panels(
    nodes: Sequence[NodeSummary],
    folds: Sequence[Fold],
    standing_of: Mapping[str, Standing],
    anchors: Mapping[str, str],
) -> list[Panel]:
    """Nodes by the inventory groups that distinguish them, and by rack. Groups with the worst
    findings first, racks of a group in their own order."""
    everywhere = (
        set.intersection(*[set(node.groups) for node in nodes]) if len(nodes) > 1 else set()
    )
    members: dict[tuple[tuple[str, ...], tuple[str, ...]], list[NodeSummary]] = {}
    for node in nodes:
        own = [
            group
            for group in sorted(node.groups)
            if group not in everywhere and group not in _UNGROUPED
        ]
        racks = tuple(group for group in own if _RACK.match(group))
        members.setdefault((tuple(group for group in own if group not in racks), racks), []).append(
            node
        )
    shared = (
        ", ".join(visible(group, 40) for group in sorted(everywhere - set(_UNGROUPED)))
        or "all nodes"
    )
    harm: dict[tuple[str, ...], int] = {}
    for (groups, _), found in members.items():
        harm[groups] = min(
            harm.get(groups, len(KINDS)), *(_rank(standing_of[node.host].kind) for node in found)
        )
    ordered = sorted(
        members, key=lambda key: (harm[key[0]], key[0], [natural(rack) for rack in key[1]])
    )
    named = len(nodes) <= MOST_NAMED
    return [
        _panel(_title(key, shared), members[key], folds, standing_of, anchors, named)
        for key in ordered
    ]


def _title(key: tuple[tuple[str, ...], tuple[str, ...]], shared: str) -> str:
    groups, racks = key
    return ", ".join(visible(group, 40) for group in (*groups[:4], *racks[:2])) or shared


def _panel(
    name: str,
    nodes: list[NodeSummary],
    folds: Sequence[Fold],
    standing_of: Mapping[str, Standing],
    anchors: Mapping[str, str],
    named: bool,
) -> Panel:
    ordered = sorted(nodes, key=lambda node: natural(node.host))
    cells = []
    for place, node in enumerate(ordered):
        stands = standing_of[node.host]
        x, y = (place % COLUMNS) * STEP_X, (place // COLUMNS) * STEP_Y
        tip = _tip(node, stands, folds)
        cells.append(
            Cell(
                node.host,
                stands.kind,
                round(x, 1),
                round(y, 1),
                _label(node.host) if named else "",
                tip,
                anchors[node.host],
            )
        )
    counts = stated(Counter(cell.kind for cell in cells))
    parts = [f"{count:,} {word}" for word, count in counts.items()]
    summary, brief = (
        ", ".join(parts),
        ", ".join(parts[:-1] if "healthy" in counts else parts) or "healthy",
    )
    whole, height = f"{counted(len(nodes), 'node')}: {summary}", -(-len(nodes) // COLUMNS) * STEP_Y
    return Panel(
        name, tuple(node.host for node in ordered), whole, brief, named, height, tuple(cells)
    )


def stated(kinds: Mapping[str, int]) -> dict[str, int]:
    """Verdict of nodes, as the terminal and findings.json have it, -> how many; in the order of
    harm, none that no node has. kinds: kind -> how many."""
    counts = {KIND_WORDS[kind]: kinds.get(kind, 0) for kind in KINDS if kind not in HEALTHY}
    counts["healthy"] = sum(kinds.get(kind, 0) for kind in HEALTHY)
    return {word: count for word, count in counts.items() if count}


def _label(host: str) -> str:
    """The host's name without its domain; of a long name the end is kept, because it has the
    number."""
    name = visible(host.split(".")[0] if not host.replace(".", "").isdigit() else host, 64)
    return name if len(name) <= 12 else "…" + name[-11:]


def _tip(node: NodeSummary, stands: Standing, folds: Sequence[Fold]) -> str:
    name = fold_hosts([node.host])
    if node.status != "ok":
        return f"{name}: {STATUS_WORDS.get(node.status, 'not read')}"
    if not stands.folds and stands.kind == "cpu":
        return f"{name}: {NOT_A_GPU_NODE}"
    if not stands.folds:
        return (
            f"{name}: {counted(stands.unknown, 'judgement')} unknown"
            if stands.unknown
            else f"{name}: nothing found"
        )
    worst = visible(folds[stands.worst - 1].example.get("title"), 80)
    state = "healthy, a remark" if stands.kind == "ok" else KIND_WORDS[stands.kind]
    return f"{name}: {state}: {worst}" + (
        f", and {len(stands.folds) - 1} more" if len(stands.folds) > 1 else ""
    )
