"""What is kept of a node once it is judged, and what is called once all are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from unhang.judge.documents import NodeDocument
from unhang.judge.findings import Entry


class Board(NamedTuple):
    """What names a GPU on a ticket, as far as it was read."""

    gpu: int
    uuid: str | None
    pci_address: str | None
    serial: str


@dataclass(frozen=True)
class JudgedNode:
    """read: its facts were; scheduler: slurm, kubernetes or ""; policy: {} for one that cannot be used; policy_key: the same for equal policies.

    boards: those of its GPUs that have a serial number. kept: what the caller of the judge wanted to keep of its facts.
    """

    read: bool
    scheduler: str
    policy: dict[str, Any]
    policy_key: int
    boards: tuple[Board, ...] = ()
    kept: Any = None


Keep = Callable[[NodeDocument], Any]  # what is kept of a node's facts until all are judged
Conclude = Callable[[list[Entry], dict[str, JudgedNode]], dict[str, Any]]  # entries as findings.json has them, host -> node; gives more keys of its head


def scheduler_of(sections: Any) -> str:
    """Who gives a node its jobs, as far as its facts say so."""
    node = sections.node if sections is not None else None
    if node is not None and node.slurm is not None and node.slurm.slurmd:
        return "slurm"
    return "kubernetes" if node is not None and node.kubernetes is not None and node.kubernetes.kubelet else ""


def boards_of(sections: Any) -> tuple[Board, ...]:
    """The boards of a node's GPUs that have a serial number; consumer cards have none."""
    gpus = sections.gpus if sections is not None else None
    devices = (gpus.devices if gpus is not None else None) or ()
    return tuple(Board(one.index, one.uuid, one.pci_address, one.serial) for one in devices if one.serial)
