"""What is kept of a node once it is judged, and what is called once all are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unhang.judge.findings import Entry


@dataclass(frozen=True)
class JudgedNode:
    """read: its facts were; scheduler: slurm, kubernetes or ""; policy: {} for one that cannot be used; policy_key: the same for equal policies."""

    read: bool
    scheduler: str
    policy: dict[str, Any]
    policy_key: int


Conclude = Callable[[list[Entry], dict[str, JudgedNode]], dict[str, Any]]  # entries as findings.json has them, host -> node; gives more keys of its head


def scheduler_of(sections: Any) -> str:
    """Who gives a node its jobs, as far as its facts say so."""
    node = sections.node if sections is not None else None
    if node is not None and node.slurm is not None and node.slurm.slurmd:
        return "slurm"
    return "kubernetes" if node is not None and node.kubernetes is not None and node.kubernetes.kubelet else ""
