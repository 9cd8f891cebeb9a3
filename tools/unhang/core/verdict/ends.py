"""Evidence that names a rank with certainty: gone, stopped, stuck in the kernel, in another
operation, never come. Values in, values out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from unhang.core.verdict.activities import LOADING, STARTING
from unhang.core.verdict.communicators import Standing
from unhang.core.verdict.job import Job, Process, RankLook
from unhang.core.verdict.rendering import fold_ranks, ranks_wait
from unhang.core.verdict.suspect import Suspect

# phases of suspects: what somebody did to them, and lets go on
FROZEN, STOPPED = "frozen", "stopped"
NEXT = {
    "gone": (
        "look for the OOM killer and Xids in the kernel log of {host}: unhang audit --host {host};"
        " then end the job, the others only wait"
    ),
    "debugger": (
        "process {tracer} on {host} traces it (a debugger): let it go on, or end that process"
    ),
    FROZEN: (
        "let it go on: docker unpause (or podman) where a container was paused, else as root on"
        " {host}: unset the switch in {folder} (cgroup.freeze 0, or freezer.state THAWED); or find"
        " out who froze it"
    ),
    STOPPED: (
        "find who sent SIGSTOP: a debugger, a job manager's suspend, a frozen container;"
        " kill -CONT {pid} on {host} lets it go on"
    ),
    "kernel": (
        "unhang audit -i INVENTORY --host {host}; look at the kernel log and the driver there"
    ),
    "spy": "py-spy dump --pid {pid}   (as the job's user, or as root)",
    "worker": (
        "the item that its worker {pid} reads: does its path or server answer? Try the loader alone"
        " with num_workers=0"
    ),
    "children": (
        "the file system that its workers wait for: cat /proc/{pid}/stack as root, mount | grep"
        " nfs, dmesg on {host}"
    ),
    "missed": (
        "read where it is: py-spy dump on its process; a condition that only some ranks meet,"
        " or a call that waits"
    ),
    "path": (
        "links, NICs and switches between the nodes: unhang smoke --isolate finds the pair when the"
        " nodes are free; nvidia-smi nvlink -s, ibstat now"
    ),
    "order": (
        "py-spy dump of each rank for its line: who sends to whom, and which group is called first;"
        " unhang lint finds calls by rank; TORCH_FR_BUFFER_SIZE=2000 records the order"
    ),
    "split": (
        "all ranks must call the same collectives in the same order: compare the two lines; unhang"
        " lint finds conditions by rank"
    ),
    "peer": (
        "can {host} reach {address}? firewall, interface (NCCL_SOCKET_IFNAME), the other node's job"
        " step: nc -vz {spaced}"
    ),
    "meet": (
        "end both, and start all ranks with one MASTER_ADDR and MASTER_PORT: a port that each"
        " process chooses for itself is never the same"
    ),
    "others": "start the missing ranks, or see why their nodes did not: the launcher's log there",
}

UNMET = "if they still do in a minute, at two addresses or ports, or for one that answers nobody"


def ended_ranks(job: Job) -> list[Suspect]:
    """Ranks whose process is gone while others go on: between the looks, or known to RAS alone."""
    looks, standing = job.looks, job.standing
    alive = [look for look in looks if not look.is_ended]
    found = [
        _ended(
            look.host,
            look.rank,
            look.gpu,
            f"its process {'ended and is a zombie' if look.state == 'Z' else 'has ended'}"
            f" (pid {look.pid}); the others wait for it",
        )
        for look in looks
        if look.is_ended and alive
    ]
    known = {look.rank for look in looks}
    there = {look.own_pid for look in alive}  # what /proc shows outweighs what RAS says
    places = standing.places
    hosts = {places[look.rank or 0][0]: look.host for look in looks if look.rank in places}
    for rank in sorted(standing.missing):
        address, pid = places[rank]
        if rank not in known and pid not in there and address in hosts:
            why = f"its process is gone, and RAS misses it (pid {pid}); the others wait for it"
            found.append(_ended(hosts[address], rank, None, why))
    return found or [*_fewer_than_local(job)]


def _ended(host: str, rank: int | None, gpu: str | None, why: str) -> Suspect:
    return Suspect(
        host,
        rank,
        gpu,
        "ended",
        why,
        NEXT["gone"].format(host=host),
        cause="rank_failed",
    )


def _fewer_than_local(job: Job) -> Iterator[Suspect]:
    """A launcher that started so many ranks on this node, of which some are not there. Without a
    launcher nobody saw that they were."""
    if job.standing.moved or never_meet(job):
        return
    for host in dict.fromkeys(look.host for look in job.looks):
        own = [
            look
            for look in job.looks
            if look.host == host and look.rank is not None and look.is_launched
        ]
        meant = max((look.local_world_size for look in own), default=0)
        if own and len(own) < meant and any(look.activity != STARTING for look in own):
            first = min(look.rank or 0 for look in own) // meant * meant
            gone = sorted({*range(first, first + meant)} - {look.rank for look in own})
            why = (
                f"{meant} ranks were started on {host} and {len(own)} are there: rank"
                f" {fold_ranks(gone)} is gone"
            )
            yield _ended(host, gone[0] if len(gone) == 1 else None, None, why)


def stopped_or_stuck(job: Job) -> Iterator[Suspect]:
    """Stopped by a signal or a debugger, or in the kernel where no signal reaches."""
    for look in job.looks:
        where = f"; it is in {look.where}" if look.where else ""
        phase, pid = STOPPED, look.pid
        if look.frozen:
            phase, why = FROZEN, f"its control group {look.frozen} is frozen"
            then = NEXT[FROZEN]
        elif child := _halted(look):
            pid, then = child.pid, NEXT[STOPPED]
            why = f"its child {pid} ({child.command}) is stopped (state T), and it waits for it"
        elif look.is_stopped:
            why = f"its process is stopped (state {look.state})"
            seq = max(job.standing.total.values(), default=0)
            why += f" before collective {seq} was over, all others wait for it" * bool(seq)
            then = NEXT["debugger" if look.tracer else STOPPED]
        elif look.in_kernel:
            why = f"its process hangs in the kernel (state D, in {look.wchan or 'the kernel'})"
            phase, then = look.activity or "job", NEXT["kernel"]
        else:
            continue
        yield Suspect(
            look.host, look.rank, look.gpu, phase, why + where,
            then.format(
                tracer=look.tracer, host=look.host, pid=pid, folder=shlex.quote(look.frozen)
            ),
        )  # fmt: skip


def _halted(look: RankLook) -> Process | None:
    """The stopped child for which a rank waits: a loader's worker, or the one that it waits for."""
    loads = look.activity == LOADING and not look.moved
    awaited = look.wait.child and look.wait.child.pid
    stopped = (one for one in look.children if one.is_stopped)
    return next((one for one in stopped if loads or one.pid == awaited), None)


def silent_ranks(looks: Sequence[RankLook], standing: Standing) -> Iterator[Suspect]:
    """Ranks whose process lives, as far as is known, and does not answer RAS."""
    by_rank = {look.rank: look for look in looks}
    for rank in sorted(standing.missing):
        look = by_rank.get(rank)
        host, pid, gpu = (look.host, look.pid, look.gpu) if look else (*standing.places[rank], None)
        stands = (
            f"it is there, in state {look.state}"
            if look and look.states
            else "it is stopped, gone, or hangs in the kernel; the others wait for it"
        )
        why = f"its process (pid {pid}) does not answer NCCL's RAS: {stands}"
        yield Suspect(
            host,
            rank,
            gpu,
            "job",
            why,
            f"on {host}: grep State /proc/{pid}/status; unhang inspect --pid {pid} there",
        )


def never_meet(job: Job) -> list[Suspect]:
    """Ranks that meet at one address, and those that they wait for at another one: two jobs."""
    is_early = all(look.activity in ("", STARTING) for look in job.looks)
    if not is_early or job.standing.version or not job.looks:
        return []
    own = job.looks[0]
    for node in job.nodes:
        others = [one for one in node.apart if one.rank not in {look.rank for look in job.looks}]
        if others:
            ranks = [look.rank for look in job.looks if look.rank is not None]
            why = (
                f"rank {fold_ranks(ranks)} waits at {_meets(own.job)} and rank"
                f" {fold_ranks([one.rank for one in others])} (pid {others[0].pid} on"
                f" {node.host}) at {_meets(others[0].job)}: the same user,"
                " program and world size, but two jobs, which never meet"
            )
            return [Suspect(own.host, own.rank, None, STARTING, why, NEXT["meet"])]
    return []


def _meets(job: str) -> str:
    """MASTER_ADDR=here MASTER_PORT=29500."""
    return " ".join(word for word in job.split() if word.startswith("MASTER_")) or "no address"


def never_came(job: Job) -> list[Suspect]:
    """Ranks that still meet, and the peer that they wait for."""
    starting = [
        look
        for look in job.looks
        if look.activity == STARTING or look.rank in job.standing.starting
    ]
    if not starting or len(starting) < len(job.looks):
        return []
    world = max((look.world_size or 0 for look in job.looks), default=0)
    absent = sorted({*range(world)} - {look.rank for look in job.looks}) if world <= 1 << 20 else []
    dialled = sorted(
        {
            one.remote
            for look in starting
            for one in look.sockets
            if one.state == "SYN_SENT" and one.remote
        }
    )
    where = starting[0].where or "the setup of a communicator"
    host = starting[0].host
    if dialled:
        why = (
            f"rank {fold_ranks([look.rank or 0 for look in starting])} waits in {where} for"
            f" {dialled[0]}, which does not answer its connection"
        )
        then = NEXT["peer"].format(
            host=host, address=dialled[0], spaced=" ".join(dialled[0].rsplit(":", 1))
        )
        return [Suspect(host, starting[0].rank, None, STARTING, why, then)]
    if all(look.rank is None for look in starting):
        why = f"its launcher waits in {where} for the launchers of the other nodes"
        return [Suspect(host, None, None, STARTING, why, NEXT["others"])]
    if absent:
        hosts = ", ".join(dict.fromkeys(node.host for node in job.nodes))
        why = (
            f"rank {fold_ranks(absent[:64])} of {world} is not there on {hosts};"
            f" {ranks_wait(len(starting))} for it in {where}"
        )
        return [
            Suspect(
                None, absent[0] if len(absent) == 1 else None, None, STARTING, why, NEXT["others"]
            )
        ]
    if world and not job.standing.version:
        why = f"all {world} ranks wait in {where}; {UNMET}"
        return [Suspect(host, None, None, STARTING, why, NEXT["meet"])]
    return []
