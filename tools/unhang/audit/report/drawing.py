"""Lays a node's topology out in the units of an SVG: GPUs in a row, links above, NUMA nodes and
network ports below, and the matrix of pairs.

Topology in, coordinates out; the template only writes them down.
"""

from __future__ import annotations

from dataclasses import dataclass

from unhang.audit.report.topology import Gpu, Pair, Port, Topology
from unhang.core.text import visible

BOX, GAP = 80, 10  # a GPU's box and the space to the next
TOP, GPU_Y, NUMA_Y, PORT_Y = 8, 92, 172, 222
CELL_X, CELL_Y = 40, 26
_PATH_WORDS = {
    "internal": "INT",
    "single": "PIX",
    "multiple": "PXB",
    "hostbridge": "PHB",
    "node": "NODE",
    "system": "SYS",
}


@dataclass(frozen=True)
class Shape:
    """A box or a line with its words; `bad` ones are dashed, marked with a cross and coloured."""

    kind: str  # gpu switch numa port edge arc drop
    x: float
    y: float
    width: float
    height: float
    label: str
    note: str
    bad: bool
    path: str = ""  # of an arc


@dataclass(frozen=True)
class Drawing:
    top: float  # where it begins: nothing is above the GPUs when only PCIe joins them
    width: float
    height: float
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class Square:
    x: float
    y: float
    label: str
    tip: str
    state: str  # ok bad unread


@dataclass(frozen=True)
class Matrix:
    width: float
    height: float
    across: tuple[tuple[float, str], ...]
    down: tuple[tuple[float, str], ...]
    squares: tuple[Square, ...]


def draw(topology: Topology) -> Drawing:
    """GPUs ordered by NUMA node, so that each NUMA bar spans its own."""
    gpus = sorted(
        topology.gpus, key=lambda gpu: (gpu.numa_node is None, gpu.numa_node or 0, gpu.index)
    )
    place: dict[int, float] = {gpu.index: column * (BOX + GAP) for column, gpu in enumerate(gpus)}
    width = len(gpus) * (BOX + GAP) - GAP
    shapes = _joints(topology, place, width)
    for gpu in gpus:
        x = place[gpu.index]
        shapes.append(
            Shape("drop", x + BOX / 2, GPU_Y + 46, 0, NUMA_Y - GPU_Y - 46, "", "", gpu.pcie_narrow)
        )
        bad = gpu.lost or gpu.pcie_narrow
        shapes.append(
            Shape(
                "gpu",
                x,
                GPU_Y,
                BOX,
                46,
                f"GPU {gpu.index}",
                "no answer" if gpu.lost else visible(gpu.pcie, 20),
                bad,
            )
        )
    shapes += _numa(gpus, place)
    below = _ports(topology.ports, width)
    top = min(shape.y for shape in shapes) - 2
    bottom = max(shape.y + shape.height for shape in shapes + below) + 2
    return Drawing(top, width, bottom - top, tuple(shapes + below))


def _joints(topology: Topology, place: dict[int, float], width: float) -> list[Shape]:
    """NVSwitches as a bar with an edge to each GPU, direct NVLinks as arcs."""
    shapes: list[Shape] = []
    if any(gpu.remote == "switch" for gpu in topology.gpus):
        count = f" × {topology.switches}" if topology.switches else ""
        state = (
            f" · fabric {topology.fabric.replace('_', ' ')}"
            if topology.fabric not in ("", "none")
            else ""
        )
        shapes.append(
            Shape(
                "switch",
                0,
                TOP,
                width,
                28,
                f"NVSwitch{count}{state}",
                "",
                topology.fabric not in ("", "none", "completed"),
            )
        )
    elif any(gpu.remote == "gpu" for gpu in topology.gpus):
        shapes += [_arc(pair, place) for pair in topology.pairs if pair.nvlinks]
    for gpu in topology.gpus:
        if gpu.remote in ("", "none") or gpu.links is None:
            continue
        top = TOP + 28 if gpu.remote == "switch" else GPU_Y - 16
        note = f"{gpu.links if gpu.links_active is None else gpu.links_active}/{gpu.links}"
        shapes.append(
            Shape(
                "edge",
                place[gpu.index] + BOX / 2,
                top,
                0,
                GPU_Y - top,
                note,
                "NVLinks active",
                gpu.links_down > 0,
            )
        )
    return shapes


def _arc(pair: Pair, place: dict[int, float]) -> Shape:
    left, right = sorted((place[pair.a] + BOX / 2, place[pair.b] + BOX / 2))
    rise = GPU_Y - 16 - min(72, 14 + (right - left) / 9)
    return Shape(
        "arc",
        left,
        rise,
        right - left,
        0,
        f"{pair.nvlinks} NVLinks between GPU {pair.a} and GPU {pair.b}",
        "",
        pair.broken,
        path=(
            f"M{left:g} {GPU_Y - 16}Q{(left + right) / 2:g} {2 * rise - GPU_Y + 16:g} {right:g}"
            f" {GPU_Y - 16}"
        ),
    )


def _numa(gpus: list[Gpu], place: dict[int, float]) -> list[Shape]:
    spans: dict[int | None, list[float]] = {}
    for gpu in gpus:
        spans.setdefault(gpu.numa_node, []).append(place[gpu.index])
    return [
        Shape(
            "numa",
            min(xs),
            NUMA_Y,
            max(xs) - min(xs) + BOX,
            26,
            _numa_label(node, len(xs)),
            "",
            False,
        )
        for node, xs in spans.items()
    ]


def _numa_label(node: int | None, gpus: int) -> str:
    if node is None or node < 0:
        return "PCIe"
    return f"NUMA {node}" if gpus == 1 else f"NUMA {node} · PCIe"


def _ports(ports: tuple[Port, ...], width: float) -> list[Shape]:
    """Network ports by NUMA node under the bars, in as many rows as they need."""
    ordered = sorted(
        ports, key=lambda port: (port.numa_node is None, port.numa_node or 0, port.name)
    )
    columns = max(1, int((width + GAP) // (BOX + GAP)))
    shapes = []
    for number, port in enumerate(ordered):
        x, y = (number % columns) * (BOX + GAP), PORT_Y + (number // columns) * 48
        rate = f"{port.rate_gbps:g} Gb/s" if port.rate_gbps else visible(port.layer, 12)
        shapes.append(
            Shape(
                "port",
                x,
                y,
                BOX,
                38,
                _short(port.name),
                _short(port.state) if port.down else rate,
                port.down,
            )
        )
    return shapes


def _short(text: str) -> str:
    """What fits into a box."""
    shown = visible(text, 64)
    return shown if len(shown) <= 12 else shown[:11] + "…"


def matrix(topology: Topology) -> Matrix:
    """Each pair once, as nvidia-smi names its path: NV18 by NVLink, PIX and PXB by PCIe switches,
    PHB, NODE and SYS through the CPU."""
    indices = [gpu.index for gpu in topology.gpus]
    column = {index: 36 + (place - 1) * CELL_X for place, index in enumerate(indices)}
    row = {index: 22 + place * CELL_Y for place, index in enumerate(indices)}
    squares = tuple(_square(pair, column[pair.b], row[pair.a]) for pair in topology.pairs)
    return Matrix(
        width=36 + (len(indices) - 1) * CELL_X,
        height=22 + (len(indices) - 1) * CELL_Y,
        across=tuple((column[index] + CELL_X / 2, str(index)) for index in indices[1:]),
        down=tuple((row[index] + CELL_Y / 2, str(index)) for index in indices[:-1]),
        squares=squares,
    )


def _square(pair: Pair, x: float, y: float) -> Square:
    way = f"NV{pair.nvlinks}" if pair.nvlinks else _PATH_WORDS.get(pair.topology, "?")
    state = "bad" if pair.broken else "ok" if pair.status == "ok" else "unread"
    text = {
        "bad": f"cannot reach each other: {visible(pair.status, 60)}",
        "ok": "reach each other",
        "unread": "not read",
    }[state]
    return Square(
        x, y, "✕" if state == "bad" else way, f"GPU {pair.a} and GPU {pair.b}, {way}: {text}", state
    )
