"""Which nodes are compared with each other: those of the same inventory groups, and sets of such
nodes that a rack, switch or partition keeps apart.

Nodes of exactly the same groups, GPU models and use of MIG are one cell, and so are those whose
policy names the same `peers`. A node whose GPUs no other has, or were not read, stays with the
others; a head or login node, which has none, does not.
Cells are joined if they share a group, have the same hardware and the same policy. Hardware and
policy are those of most nodes of a cell, so that one node's fault or waiver takes nobody from his
peers. Without joining, groups for racks split a model's nodes, and six of them with two drivers
were six healthy nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from unhang.judge.fleet.judged_node import is_without_gpus, scheduler_of
from unhang.judge.rules.groups import EVERYBODY, Ballot, add_ballot

CellKey = tuple[str, tuple[str, ...]]  # the inventory groups or `peers`, and the models of GPUs
NO_GPU = ("no GPU",)
Vote = tuple[int, str]  # the number of a rule, and the item of its list, "" without one


@dataclass
class Cell:
    """Nodes that are compared in any case. policy, waivers and groups: of its first node."""

    policy: dict[str, Any]
    waivers: Mapping[str, Any]
    groups: tuple[str, ...]
    hosts: list[str] = field(default_factory=list)
    ballots: dict[Vote, Ballot] = field(default_factory=dict)
    policies: Counter[bytes] = field(default_factory=Counter)
    hardware: Counter[Hashable] = field(default_factory=Counter)


@dataclass
class Peers:
    """A peer group of one or several cells."""

    cells: list[Cell]
    ballots: dict[Vote, Ballot]

    @property
    def policy(self) -> dict[str, Any]:
        return self.cells[0].policy

    def cells_of(self, hosts: Iterable[str]) -> list[Cell]:
        """The cell of each host."""
        of_host = {host: cell for cell in self.cells for host in cell.hosts}
        return [of_host[host] for host in hosts]


def hardware_of(sections: Any) -> Hashable | None:
    """What makes nodes comparable: models and number of GPUs, the machine, its kind of RDMA, MIG
    and the scheduler; None for a node without GPUs. The number is the next power of two, because a
    node that has lost a GPU stays with its peers."""
    gpus = sections.gpus if sections is not None else None
    models = {one.model for one in (gpus.devices if gpus is not None else None) or () if one.model}
    if gpus is None or not gpus.count or not (models or gpus.model):
        return None
    dmi = sections.node.dmi if sections.node is not None else None
    machine = (dmi.vendor, dmi.product) if dmi is not None else ()
    cards = (sections.network.rdma if sections.network is not None else None) or ()
    links = sorted(
        {port.link_layer for card in cards for port in card.ports or () if port.link_layer}
    )
    return (
        *sorted(models or {gpus.model}),
        1 << (gpus.count - 1).bit_length(),
        *machine,
        *links,
        is_cut(gpus),
        scheduler_of(sections),
    )


def is_cut(gpus: Any) -> bool:
    return any(one.mig is not None and one.mig.enabled for one in gpus.devices or ())


def models_of(sections: Any) -> tuple[str, ...]:
    """The models of a node's GPUs, and whether MIG cuts them; NO_GPU if there are none; () if they
    were not read."""
    gpus = sections.gpus if sections is not None else None
    models = {one.model for one in (gpus.devices if gpus is not None else None) or () if one.model}
    if is_without_gpus(sections):
        return NO_GPU
    return (*sorted(models), *(["MIG"] if models and is_cut(gpus) else []))


def policy_key(*policies: Mapping[str, Any]) -> bytes:
    """Equal for policies that want the same of a node; a waiver wants nothing."""
    return msgspec.json.encode(
        [{key: value for key, value in one.items() if key != "waivers"} for one in policies],
        order="sorted",
    )


def _by_name(cells: Mapping[CellKey, Cell]) -> dict[str, Cell]:
    """The cells under names. Of the nodes of one name, those of each model of GPUs that several
    have are a cell, and all others are in the largest."""
    alike: dict[str, dict[tuple[str, ...], Cell]] = {}
    for (name, models), cell in cells.items():
        alike.setdefault(name, {})[models] = cell
    found: dict[str, Cell] = {}
    for name, by_models in alike.items():
        largest = max(
            by_models, key=lambda models: (models not in ((), NO_GPU), len(by_models[models].hosts))
        )
        whole = {
            models: cell
            for models, cell in by_models.items()
            if models in (largest, NO_GPU) or (models and len(cell.hosts) > 1)
        }
        for models, cell in by_models.items():
            if models not in whole:
                _merge(whole[largest], cell)
        for models, cell in whole.items():
            found[name if len(whole) == 1 else f"{name} ({', '.join(models)})"] = cell
    return found


def _merge(into: Cell, cell: Cell) -> None:
    into.hosts += cell.hosts
    into.policies.update(cell.policies)
    into.hardware.update(cell.hardware)
    for rule, ballot in cell.ballots.items():
        add_ballot(
            into.ballots.setdefault(rule, Ballot(ballot.group)), ballot, frozenset(cell.hosts)
        )


def joined(kept: Mapping[CellKey, Cell]) -> list[tuple[str, Peers]]:
    """The peer groups with their names, in the order of the cells. A joined one is named for the
    groups that all of its nodes share."""
    cells = _by_name(kept)
    kinds: dict[Hashable, dict[str, Cell]] = {}
    for name, cell in cells.items():
        kinds.setdefault(_kind(name, cell), {})[name] = cell
    found: dict[str, list[Cell]] = {}
    for together in (one for kind in kinds.values() for one in _by_largest_group(kind)):
        shared = "+".join(
            sorted(set.intersection(*(set(cell.groups) for cell in together.values())) - EVERYBODY)
        )
        first = next(iter(together))
        is_new = len(together) > 1 and shared not in found and shared not in cells
        found[shared if is_new else first] = list(together.values())
    order = {id(cell): place for place, cell in enumerate(cells.values())}
    return [
        (name, _peers(name, together))
        for name, together in sorted(found.items(), key=lambda one: order[id(one[1][0])])
    ]


def _kind(name: str, cell: Cell) -> Hashable:
    """Cells of one kind may be joined. Cells of a policy's `peers` and of nodes without GPUs are
    the only ones of their kind."""
    hardware = cell.hardware.most_common(1)[0][0]
    return (
        name
        if "peers" in cell.policy or hardware is None
        else (hardware, cell.policies.most_common(1)[0][0])
    )


def _by_largest_group(cells: dict[str, Cell]) -> Iterator[dict[str, Cell]]:
    """Cells that share a group, together; the group with most nodes first."""
    waiting, members, sizes = dict(cells), dict[str, dict[str, None]](), Counter[str]()
    for name, cell in cells.items():
        for group in set(cell.groups) - EVERYBODY:
            members.setdefault(group, {})[name] = None
            sizes[group] += len(cell.hosts)
    for group, _ in sizes.most_common():
        together = {name: waiting[name] for name in members[group] if name in waiting}
        if len(together) > 1:
            yield together
            waiting = {name: cell for name, cell in waiting.items() if name not in together}
    yield from ({name: cell} for name, cell in waiting.items())


def _peers(name: str, cells: list[Cell]) -> Peers:
    ballots: dict[Vote, Ballot] = {}
    for cell in cells:
        for vote, ballot in cell.ballots.items():
            among = ballots.setdefault(vote, Ballot(name, ballot.item))
            add_ballot(among, ballot, frozenset(cell.hosts))
    return Peers(cells, ballots)
