"""Rules over networks: interfaces that the other nodes do not reach, and adapters that are not
used."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event, names_in
from unhang.jobs.diagnose.meaning.evidence import STRONG, SUPPORTING, Evidence
from unhang.jobs.diagnose.meaning.signs import speed_falls


def unreachable_interface(facts: Facts) -> Iterator[Evidence]:
    """NCCL's bootstrap uses an address that no other machine reaches, as that of a bridge, in a job
    of several machines.

    Decides diagnose_batches/10/009.
    """
    several = (
        len({event.prefix.host for event in facts.of("bootstrap")} - {None}) > 1
        or any(event.number("value") > 1 for event in facts.of("nnodes"))
        or facts.of("socket_failed")
        or any(event.id.startswith(("nccl-connect", "torch-connect")) for event in facts.events)
    ) and not (facts.of("local_peer_closed") and len(facts.hosts) < 2)
    # another run of the same host is an experiment
    reached = {event.prefix.host for event in facts.of("bootstrap") if not _is_unreachable(event)}
    for event in facts.of("bootstrap"):
        part = event.fields
        is_experiment = part["interface"] == "lo" and event.prefix.host in reached
        if several and _is_unreachable(event) and not is_experiment:
            yield Evidence(
                "wrong_interface",
                SUPPORTING + 1,
                f"NCCL's bootstrap uses {part['interface']} {part['address']}, which other machines"
                " cannot reach",
                (event,),
                "bootstrap-unreachable",
            )
            return


def _is_unreachable(bootstrap: Event) -> bool:
    return (bootstrap.fields["address"] or "").startswith(names_in("unreachable")) or (
        bootstrap.fields["interface"] or ""
    ).startswith(names_in("bridges"))


def gpudirect_on_some_hosts(facts: Facts) -> Iterator[Evidence]:
    """Some hosts use GPUDirect and others, with the same kind of adapter, do not.

    Decides diagnose_batches/9/010, diagnose/gdr_peermem_missing/receive-without-gdrdma.
    """
    direct = {event.prefix.host for event in facts.of("gdr_enabled") if "GDRDMA" in event.text}
    # Only receives count: if reading GPU memory is slow, NCCL sends without GPUDirect on purpose.
    detour = [
        event
        for event in facts.of("transport")
        if "[receive] via NET/IB" in event.text and "GDRDMA" not in event.text
    ]
    alone = [event for event in detour if event.prefix.host not in direct]
    if direct and alone:
        yield Evidence(
            "gdr_peermem_missing",
            STRONG,
            f"{alone[0].prefix.host} does not use GPUDirect RDMA and other hosts do",
            (alone[0],),
            "gdr-on-some-hosts",
        )
    elif direct and not facts.of("gdr_disabled"):
        yield Evidence(
            "gdr_peermem_missing",
            -STRONG,
            "GPUDirect RDMA is in use",
            tuple(facts.of("gdr_enabled")[:1]),
            "gdr-in-use",
        )


def rdma_not_used(facts: Facts) -> Iterator[Evidence]:
    """NCCL finds no RDMA adapter and ranks of different nodes talk over TCP, or the job is slow,
    and an adapter is requested or visible.

    Decides diagnose_batches/10/026.
    """
    none = facts.of("net_ib_none") or facts.of("network_socket")
    if not none or any("via NET/IB" in event.text for event in facts.of("transport")):
        return
    wanted = [*facts.set_to(*names_in("wants_adapters")), *facts.of("ib_adapter")]
    if wanted and (facts.of("socket_channel") or speed_falls(facts)):
        yield Evidence(
            "ib_misconfig",
            STRONG,
            "an RDMA adapter is requested or present, and NCCL finds none",
            (none[0], wanted[0]),
            "rdma-not-used",
        )
