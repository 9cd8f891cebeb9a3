"""The brake: whether the next batch may begin, and who of it. It counts verdicts; a node without one counts as failed. States in, decisions out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unhang.errors import UserError
from unhang.rollout.node_state import NodeState
from unhang.rollout.steps import FINAL, HELD, POSTPONED, RELEASED, RESTING, UNDER_WAY, UNRELEASED

CANARY_LIMIT = 0


@dataclass(frozen=True)
class Limit:
    """At most so many of these hosts are out of service at a time. name: of the rack, partition or group, for the message."""

    name: str
    hosts: frozenset[str]
    out_of_service: int


@dataclass(frozen=True)
class Limits:
    """failed: how many nodes may end without being proved before nothing new is begun; of the canaries none. groups: how many may be out of service."""

    failed: int = 0
    canaries: frozenset[str] = frozenset()
    groups: tuple[Limit, ...] = ()


@dataclass(frozen=True)
class Admission:
    """begin: the batch, in the plan's order; postponed: {host: why}; stopped: why nothing new is changed in any of them.

    Who has something of ours on it is in `begin` whatever speaks against it, so that it comes to an end."""

    begin: tuple[str, ...]
    postponed: Mapping[str, str]
    stopped: str | None


def allowed_failures(given: int | str, targeted: int) -> int:
    """A number, or a share of the targeted nodes ("5%", rounded down). Raises UserError."""
    text = str(given).strip()
    if text.isdigit():
        return int(text)
    if text.endswith("%") and text[:-1].isdigit() and int(text[:-1]) <= 100:
        return targeted * int(text[:-1]) // 100
    raise UserError(f"expected a number of nodes or a share such as 5%, found {given!r}")


def stop_reason(waves: Sequence[Sequence[str]], wave: int, nodes: Mapping[str, NodeState], limits: Limits) -> str | None:
    """Why nothing new may be changed in this wave (counted from 0), None when it may."""
    earlier = [host for hosts in waves[:wave] for host in hosts]
    current = [host for host in waves[wave] if _has_ended(_node(nodes, host))]
    lost = [host for host in earlier if _node(nodes, host).lost] + [host for host in current if _node(nodes, host).lost]
    if lost:
        return f"not brought back, or no answer after it was changed: {_listed(lost)}"
    failed = [host for host in earlier + current if not _is_proved(_node(nodes, host)) and _node(nodes, host).state != POSTPONED]
    canaries = [host for host in failed if host in limits.canaries]
    if len(canaries) > CANARY_LIMIT:
        return f"not proved healthy among the canaries: {_listed(canaries)}"
    if len(failed) > limits.failed:
        return f"not proved healthy: {_listed(failed)}; at most {limits.failed} may be"
    return None


def admit(waves: Sequence[Sequence[str]], wave: int, nodes: Mapping[str, NodeState], limits: Limits) -> Admission:
    """Who of the wave may begin. Who is under way already stays; who would be one too many out of service waits for another run."""
    stopped = stop_reason(waves, wave, nodes, limits)
    out = {host for host, node in nodes.items() if node.out_of_service}
    begin, postponed = [], dict[str, str]()
    for host in waves[wave]:
        node = _node(nodes, host)
        if node.state in FINAL:
            continue
        full = next((limit for limit in limits.groups if host in limit.hosts and len((out | {host}) & limit.hosts) > limit.out_of_service), None)
        if full is not None and host not in out:
            postponed[host] = f"expected at most {full.out_of_service} nodes of {full.name} out of service, found {_listed(sorted(out & full.hosts))}"
        elif not stopped:
            out.add(host)
        if node.touched or (host in out and not stopped):
            begin.append(host)
    return Admission(tuple(begin), postponed, stopped)


def _node(nodes: Mapping[str, NodeState], host: str) -> NodeState:
    return nodes.get(host, NodeState(host))


def _is_proved(node: NodeState) -> bool:
    return node.state in (RELEASED, HELD) or (node.state in (UNRELEASED, UNDER_WAY) and node.proved)


def _has_ended(node: NodeState) -> bool:
    return node.state in FINAL or node.state in RESTING


def _listed(hosts: Sequence[str]) -> str:
    return ", ".join(hosts[:8]) + (f" and {len(hosts) - 8} more" if len(hosts) > 8 else "")
