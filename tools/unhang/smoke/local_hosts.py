"""One machine as several hosts: NCCL uses the network between ranks with different NCCL_HOSTID, so
that path can be tested without a second node.

https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-hostid
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from unhang.core.errors import UserError
from unhang.smoke.node_plans import Member, NodePlan, Request
from unhang.smoke.streams import Stream

# All that hosts which share one GPU send goes through sockets, and its memory is for all of them.
SHARED_GPU_BYTES = 256 << 20


@dataclass(frozen=True)
class LocalHosts:
    """members: in the order of their ranks. environment: settings by rank that make hosts of them.
    shared: two and more of them have one GPU."""

    members: tuple[Member, ...]
    environment: dict[str, dict[str, str]]
    shared: bool = False

    def request(self, request: Request) -> Request:
        """The same request for these hosts. A rank's own settings stay in force."""
        given = request.rank_environment
        settings = {
            rank: {**self.environment.get(rank, {}), **given.get(rank, {})}
            for rank in {**self.environment, **given}
        }
        largest = (
            min(request.max_bytes or SHARED_GPU_BYTES, SHARED_GPU_BYTES)
            if self.shared
            else request.max_bytes
        )
        return replace(request, rank_environment=settings, max_bytes=largest)


def one_host(host: str, nproc: int, interface: str | None) -> LocalHosts:
    """This machine as one host."""
    return LocalHosts((Member(host, nproc, interface),), {})


def several_hosts(
    host: str, count: int, gpus: Sequence[str], nproc: int | None, interface: str | None
) -> LocalHosts:
    """This machine as `count` hosts that share out its GPUs, or each have its only GPU. gpus: as
    CUDA_VISIBLE_DEVICES names them; [] without GPUs.

    nproc: ranks of each host, instead of one for each of its GPUs (2 without GPUs). Raises
    UserError.
    """
    if count < 2:
        raise UserError(
            f"--as-hosts takes at least 2 hosts, not {count}; leave it out for this machine as it"
            " is"
        )
    if 1 < len(gpus) < count:
        raise UserError(
            f"--as-hosts takes at most a host for each of {len(gpus)} GPUs, or one GPU that all"
            f" share, not {count}"
        )
    each = len(gpus) // count
    ranks = nproc or each or (1 if gpus else 2)
    if gpus and ranks > max(1, each):
        raise UserError(
            f"--nproc takes at most {max(1, each)} ranks on each of {count} hosts, which is one for"
            f" each of its GPUs, not {ranks}"
        )
    environment = {}
    for rank in range(count * ranks):
        number = rank // ranks
        seen = {"CUDA_VISIBLE_DEVICES": ",".join(gpus[number * each :][:each])} if each else {}
        environment[str(rank)] = {"NCCL_HOSTID": f"{host}-{number}", **seen}
    members = tuple(Member(f"{host}-{number}", ranks, interface) for number in range(count))
    return LocalHosts(members, environment, shared=len(gpus) == 1)


def run_hosts(plans: Sequence[NodePlan], run: Callable[[NodePlan], Stream]) -> list[Stream]:
    """The streams of agents that run at the same time."""
    with ThreadPoolExecutor(max_workers=len(plans)) as workers:
        return list(workers.map(run, plans))
