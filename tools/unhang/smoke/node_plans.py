"""The plans of the nodes: which ranks each node starts, and how. Values in, values out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from unhang.core.errors import UserError

PHASES = (
    "environment", "binding", "rendezvous", "consistency", "init", "broadcast", "all_reduce",
    "all_gather", "reduce_scatter", "agreement", "shapes", "ddp", "fsdp", "pace", "bandwidth",
)  # fmt: skip
FAULTS = ("absent", "stop", "exit", "crash", "slow", "corrupt", "wrong_device", "read")
TOTAL_TIMEOUT_S = 600.0
# seconds for an interpreter to start, as in the payload; a longer step timeout applies to it too
START_S = 30.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Request:
    """The user's options for a group.

    phases: None for the usual ones. step_timeout_s: one collective. total_timeout_s: the whole.
    max_bytes: largest message. drills: planned faults.
    environment: for all ranks; rank_environment: by rank. python: with the users' torch.
    rendezvous_timeout_s: for ranks that do not come.
    """

    backend: str = "auto"
    phases: tuple[str, ...] | None = None
    step_timeout_s: float | None = None
    total_timeout_s: float = TOTAL_TIMEOUT_S
    max_bytes: int | None = None
    bandwidth_bytes: tuple[int, ...] | None = None
    bandwidth_ops: tuple[str, ...] | None = None
    python: str | None = None
    drills: tuple[Mapping[str, Any], ...] = ()
    environment: Mapping[str, str | None] = field(default_factory=dict)
    rank_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    rendezvous_timeout_s: float | None = None


@dataclass(frozen=True)
class Member:
    """One node of a group: where it is reached as `host`, how many ranks it gets, which interface
    gloo is to use there."""

    host: str
    nproc: int
    interface: str | None = None


@dataclass(frozen=True)
class NodePlan:
    """The plan of one node's agent. ranks: global ranks on this node; document: the plan as the
    payload reads it."""

    host: str
    ranks: tuple[int, ...]
    document: dict[str, Any]

    @property
    def limit_s(self) -> float:
        """Of the whole test."""
        return float(self.document["total_timeout_s"])


def plan_group(
    request: Request, members: Sequence[Member], address: str, port: int
) -> list[NodePlan]:
    """One plan per node; ranks are numbered in the order of the members. address, port: where rank
    0, on the first member, opens the store."""
    world = sum(member.nproc for member in members)
    plans, offset = [], 0
    drills = _drills_by_rank(request, members)
    for member in members:
        document = {
            "host": member.host, "nproc": member.nproc, "rank_offset": offset, "world_size": world,
            "master_address": address, "master_port": port,
            "backend": request.backend, "phases": list(request.phases) if request.phases else None,
            "step_timeout_s": request.step_timeout_s,
            "total_timeout_s": request.total_timeout_s, "max_bytes": request.max_bytes,
            "python": request.python, "drills": drills,
            "bandwidth_ops": list(request.bandwidth_ops) if request.bandwidth_ops else None,
            "bandwidth_bytes": list(request.bandwidth_bytes) if request.bandwidth_bytes else None,
            "environment": dict(request.environment),
            "rank_environment": {rank: dict(values) for rank,
            values in request.rank_environment.items()}, "gloo_interface": member.interface,
            "rendezvous_timeout_s": request.rendezvous_timeout_s,
            "start_timeout_s": max(request.step_timeout_s,
            START_S) if request.step_timeout_s else None,
        }  # fmt: skip
        plans.append(
            NodePlan(
                member.host,
                tuple(range(offset, offset + member.nproc)),
                {name: value for name, value in document.items() if value is not None},
            )
        )
        offset += member.nproc
    return plans


def _drills_by_rank(request: Request, members: Sequence[Member]) -> list[dict[str, Any]]:
    """The drills of this group by rank. A drill of a host applies to each of its ranks; one of a
    host outside the group is ignored."""
    first, offset = {}, 0
    for member in members:
        first[member.host] = range(offset, offset + member.nproc)
        offset += member.nproc
    drills = []
    for drill in request.drills:
        rest = {
            name: value
            for name, value in drill.items()
            if name not in ("hosts", "from_nodes", "rank")
        }
        hit = _hit(drill, first, offset, len(members))
        drills += [{**rest, "rank": rank} for rank in hit]
    return drills


def _hit(
    drill: Mapping[str, Any], ranks: Mapping[str, range], world: int, nodes: int
) -> Sequence[int]:
    """The ranks that a drill falls on in this group."""
    if "hosts" in drill:
        return ranks[drill["hosts"][0]] if all(host in ranks for host in drill["hosts"]) else ()
    if "from_nodes" in drill:
        return (0,) if nodes >= drill["from_nodes"] else ()
    return (drill["rank"],) if drill["rank"] < world else ()


def with_changes(request: Request, changes: Mapping[str, str | None]) -> Request:
    """The same request under other settings; None takes a variable out."""
    return replace(request, environment={**request.environment, **changes})


def parse_phases(text: str) -> tuple[str, ...]:
    """Names with commas. Raises UserError."""
    chosen = [word.strip() for word in text.split(",") if word.strip()]
    if unknown := [name for name in chosen if name not in PHASES]:
        raise UserError(f"--phases takes some of {', '.join(PHASES)}, not {unknown[0]!r}")
    if not chosen:
        raise UserError(f"--phases is empty; it takes some of {', '.join(PHASES)}")
    return tuple(name for name in PHASES if name in chosen)


def parse_drill(text: str) -> dict[str, Any]:
    """WHO:FAULT or WHO:FAULT:PHASE. Raises UserError.

    WHO: a rank; a host, which means all of its ranks in whichever group it is; HOST+HOST, the first
    of them where all are in one group (a bad link, a bad way between switches); *N, rank 0 of
    groups of N nodes and more.
    """
    who, _, rest = text.partition(":")
    fault, _, phase = rest.partition(":")
    hosts = who.split("+")
    from_nodes = who[1:] if who.startswith("*") else ""
    if (
        not all(hosts)
        or fault not in FAULTS
        or (phase and phase not in PHASES)
        or (who.startswith("*") and not from_nodes.isdecimal())
    ):
        wanted = "RANK:FAULT[:PHASE], or HOST, HOST+HOST or *NODES in place of the rank"
        raise UserError(
            f"--drill takes {wanted}, with a fault of {', '.join(FAULTS)}, not {text!r}"
        )
    place: dict[str, Any] = (
        {"from_nodes": int(from_nodes)}
        if from_nodes
        else {"rank": int(who)}
        if who.isdecimal()
        else {"hosts": hosts}
    )
    return {**place, "fault": fault, **({"phase": phase} if phase else {})}


def parse_settings(texts: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE each. Raises UserError."""
    pairs = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not _NAME.fullmatch(name):
            raise UserError(f"{option} takes NAME=VALUE, not {text!r}")
        pairs[name] = value
    return pairs


def parse_rank_settings(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """RANK:NAME=VALUE each. Raises UserError."""
    found: dict[str, dict[str, str]] = {}
    for text in texts:
        rank, _, setting = text.partition(":")
        if not rank.isdecimal():
            raise UserError(f"--rank-env takes RANK:NAME=VALUE, not {text!r}")
        found.setdefault(str(int(rank)), {}).update(parse_settings([setting], "--rank-env"))
    return found


def parse_size(text: str) -> int:
    """4096, 64K, 8M, 1G (powers of 1024). Raises UserError."""
    found = re.fullmatch(r"(\d{1,15})([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not found or not int(found[1]):
        raise UserError(f"{text!r} is not a size such as 64K, 8M or 1G")
    return int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2].upper()]
