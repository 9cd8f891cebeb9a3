"""Data that is kept of a judged node until all nodes are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unhang.judge.fleet.findings import Entry


class Board(NamedTuple):
    """Names of a GPU for a ticket, as far as they were read."""

    gpu: int
    uuid: str | None
    pci_address: str | None
    serial: str


@dataclass(frozen=True)
class JudgedNode:
    """read: whether its facts were read; scheduler: slurm, kubernetes or ""; policy: {} if it
    cannot be used; policy_key: equal for equal policies. boards: of its GPUs that have a serial
    number. applied: of a node without GPUs, how many rules applied to it; None for a GPU node.
    whole: whether its collector writes all facts of today's."""

    read: bool
    scheduler: str = ""
    policy: Mapping[str, Any] = field(default_factory=dict)
    policy_key: int = 0
    boards: tuple[Board, ...] = ()
    applied: int | None = None
    whole: bool = True


# (entries of findings.json, host -> node) -> more keys of its head
Conclude = Callable[[list[Entry], dict[str, JudgedNode]], dict[str, Any]]


def scheduler_of(sections: Any) -> str:
    """The node's scheduler, from its facts."""
    node = sections.node if sections is not None else None
    if node is not None and node.slurm is not None and node.slurm.slurmd:
        return "slurm"
    return (
        "kubernetes"
        if node is not None and node.kubernetes is not None and node.kubernetes.kubelet
        else ""
    )


def is_without_gpus(sections: Any) -> bool:
    """Whether a node has no NVIDIA GPU on its PCI bus, none that the driver shows, and no driver in
    its kernel. False where the bus was not read; in WSL, whose GPUs are on no bus."""
    gpus, driver, node = (getattr(sections, name, None) for name in ("gpus", "driver", "node"))
    machine = getattr(node, "virtualization", None)
    loaded = getattr(driver, "loaded", None)
    return bool(
        gpus is not None
        and gpus.pci_count == 0
        and not gpus.count
        and not (loaded is not None and loaded.is_loaded)
        and not (machine is not None and machine.kind == "wsl")
    )


def boards_of(sections: Any) -> tuple[Board, ...]:
    """The boards of a node's GPUs that have a serial number; consumer cards have none."""
    gpus = sections.gpus if sections is not None else None
    devices = (gpus.devices if gpus is not None else None) or ()
    return tuple(
        Board(one.index, one.uuid, one.pci_address, one.serial) for one in devices if one.serial
    )
