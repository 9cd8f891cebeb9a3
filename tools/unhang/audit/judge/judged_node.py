"""Data that is kept of a judged node until all nodes are judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from unhang.audit.judge.findings import Entry


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
    number."""

    read: bool
    scheduler: str
    policy: dict[str, Any]
    policy_key: int
    boards: tuple[Board, ...] = ()


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


def boards_of(sections: Any) -> tuple[Board, ...]:
    """The boards of a node's GPUs that have a serial number; consumer cards have none."""
    gpus = sections.gpus if sections is not None else None
    devices = (gpus.devices if gpus is not None else None) or ()
    return tuple(
        Board(one.index, one.uuid, one.pci_address, one.serial) for one in devices if one.serial
    )
