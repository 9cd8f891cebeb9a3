"""Rules over networks: interfaces that the other nodes do not reach, and adapters that are not used."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts, evidence_of
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rules.signs import hang_signs
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, SUPPORTING = WEIGHTS["strong"], WEIGHTS["supporting"]
UNREACHABLE = ("172.17.", "172.18.", "169.254.", "127.", "192.168.122.", "10.88.")
BRIDGES = ("docker", "virbr", "lo", "veth", "br-", "cni", "cilium", "flannel", "podman")
_TO_ITSELF = re.compile(r"(?:remote=|connect(?:ed|ing)? to |connect )\[?(?:::ffff:)?(?:localhost|127\.0\.0\.1|::1)\b")
_BRIDGE_AMONG = re.compile(r"\[\d{1,2}\](?P<name>(?:docker|virbr|veth|br-|cni|cilium|flannel|podman)[\w.-]{0,20}):")
_INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
_WANTED = ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_NET_GDR_LEVEL", "FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "NCCL_IB_TC")


def unreachable_interface(facts: Facts) -> Iterator[Evidence]:
    several = len({event.prefix.host for event in facts.of("bootstrap")} - {None}) > 1 or any(
        int(event.fields["value"] or 1) > 1 for event in facts.of("nnodes")
    )
    several = several or bool(facts.of("socket_failed")) or any(event.signature.id.startswith(("nccl-connect", "torch-connect")) for event in facts.events)
    several = several and not (facts.of("local_peer_closed") and len(facts.hosts) < 2)
    reached = {event.prefix.host for event in facts.of("bootstrap") if not _is_unreachable(event)}  # another run of the same host is an experiment
    for event in facts.of("bootstrap"):
        address, name = event.fields["address"] or "", event.fields["interface"] or ""
        if several and not (name == "lo" and event.prefix.host in reached) and _is_unreachable(event):
            yield Evidence(
                "wrong_interface",
                SUPPORTING + 1,
                f"NCCL's bootstrap uses {name} {address}, which other machines cannot reach",
                (event,),
                "bootstrap-unreachable",
            )
            return


def _is_unreachable(bootstrap: Event) -> bool:
    return (bootstrap.fields["address"] or "").startswith(UNREACHABLE) or (bootstrap.fields["interface"] or "").startswith(BRIDGES)


def machines_share_a_name(facts: Facts) -> Iterator[Evidence]:
    """One host name with two addresses on the same interface: two machines of one name, between which NCCL tries peer-to-peer (horovod-110)."""
    seen: dict[tuple[str, str], dict[str, Event]] = {}
    for event in facts.of("bootstrap"):
        if event.prefix.host and not _is_unreachable(event):
            seen.setdefault((event.prefix.host, event.fields["interface"] or ""), {}).setdefault(event.fields["address"] or "", event)
    for (host, interface), by_address in seen.items():
        if len(by_address) > 1 and (hang_signs(facts) or facts.first_error):
            why = f"the host name {host} stands for {' and '.join(list(by_address)[:2])}, both on {interface}: NCCL takes the machines for one host"
            yield Evidence("dns_hostname", STRONG, why, tuple(by_address.values())[:2], "one-name-of-two-hosts")
            return


def loopback_is_named(facts: Facts) -> Iterator[Evidence]:
    """A variable names the loopback interface, and the job has several machines."""
    named = [event for event in facts.of("setting") if event.fields["name"] in _INTERFACES and (event.fields["value"] or "").lstrip("=") in ("lo", "lo0")]
    machines = [*facts.of("several_nodes"), *facts.of("machines_told")]
    if named and (machines or len(facts.hosts) > 1):
        why = f"{named[0].fields['name']} names the loopback interface, which reaches no other machine"
        yield Evidence("wrong_interface", STRONG, why, (named[0], *machines[:1]), "loopback-named")


def ranks_meet_at_loopback(facts: Facts) -> Iterator[Evidence]:
    """The address at which the ranks of several machines are to meet is loopback, which leads each machine to itself, and they do not meet."""
    named = [event for event in facts.of("loopback_meeting") if not event.quoted]
    machines = [event for name in ("several_nodes", "machines_told") for event in facts.of(name) if not event.quoted]
    if named and (machines or len(facts.hosts) > 1) and (hang_signs(facts) or facts.first_error):
        why = "the ranks of several machines are to meet at the loopback address, which leads each machine to itself"
        yield Evidence("dns_hostname", STRONG, why, (named[0], *machines[:1]), "meeting-at-loopback")
        yield Evidence("firewall_ports", -STRONG, why, (named[0],), "meeting-at-loopback")


def gpudirect_on_some_hosts(facts: Facts) -> Iterator[Evidence]:
    """Some hosts use GPUDirect and others, with the same kind of adapter, do not."""
    direct = {event.prefix.host for event in facts.of("gdr_enabled") if "GDRDMA" in event.text}
    # Only receives count: if reading GPU memory is slow, NCCL sends without GPUDirect on purpose.
    detour = [event for event in facts.of("transport") if "[receive] via NET/IB" in event.text and "GDRDMA" not in event.text]
    alone = [event for event in detour if event.prefix.host not in direct]
    if direct and alone:
        yield Evidence(
            "gdr_peermem_missing", STRONG, f"{alone[0].prefix.host} does not use GPUDirect RDMA and other hosts do", (alone[0],), "gdr-on-some-hosts"
        )
    elif direct and not facts.of("gdr_disabled"):
        yield Evidence("gdr_peermem_missing", -STRONG, "GPUDirect RDMA is in use", tuple(facts.of("gdr_enabled")[:1]), "gdr-in-use")


def rdma_not_used(facts: Facts) -> Iterator[Evidence]:
    """NCCL finds no RDMA adapter and ranks of different nodes talk over TCP, and an adapter is requested, visible, or the job is slow."""
    none, channels = facts.of("net_ib_none") or facts.of("network_socket"), facts.of("socket_channel")
    if not none or any("via NET/IB" in event.text for event in facts.of("transport")):
        return
    wanted: list[Event] = [event for event in facts.of("setting") if event.fields["name"] in _WANTED]
    wanted += [*facts.of("ib_adapter"), *facts.of("ib_port_up")]
    slow, told = [*facts.of("slow_told"), *facts.of("slower_told")], facts.of("rdma_named")
    if wanted and (channels or slow or facts.of("several_nodes")):
        yield Evidence("ib_misconfig", STRONG, "an RDMA adapter is requested or present, and NCCL finds none", (none[0], wanted[0]), "rdma-not-used")
    elif told and slow and facts.of("network_socket"):
        why = "the machines have an RDMA network, NCCL uses sockets, and the job is slow"
        yield Evidence("ib_misconfig", STRONG, why, (facts.of("network_socket")[0], told[0], slow[0]), "rdma-told-and-sockets")
    elif channels and slow:
        yield Evidence("ib_misconfig", STRONG - 0.4, "the nodes talk over TCP, and the job is slow", (none[0], channels[0], slow[0]), "tcp-and-slow")


def chosen_among_several_and_refused(facts: Facts) -> Iterator[Evidence]:
    """NCCL had several interfaces to choose from, and connections to the other node fail: the first one is often not on the nodes' common network."""
    several, tried = facts.of("socket_interfaces"), facts.of("connect_retried")
    if several and tried:
        names = f"{several[0].fields['interface']} was taken, {several[0].fields['second']} was there too"
        yield Evidence(
            "wrong_interface", SUPPORTING + 1, f"{names}, and connections to the other node fail", (several[0], tried[0]), "first-of-several-interfaces"
        )


def bridge_among_the_sockets(facts: Facts) -> Iterator[Evidence]:
    """NCCL's sockets use the bridge or virtual interface of a container beside the real one, and machines do not reach each other (pytorch-68893)."""
    machines = [event for name in ("several_nodes", "machines_told") for event in facts.of(name) if not event.quoted]
    fails = (hang_signs(facts) or facts.of("crash_told")) and not facts.of("training_step")
    for event in facts.of("net_devices") if fails else ():
        found = _BRIDGE_AMONG.search(event.fields["value"] or "") if event.fields["net"] == "Socket" else None
        if found and (machines or len(facts.hosts) > 1):
            why = f"NCCL's sockets also use {found['name']}, which no other machine reaches"
            yield Evidence("wrong_interface", SUPPORTING + 1, why, (event, *machines[:1]), "bridge-among-sockets")
            return


def amazon_plugin_is_not_used(facts: Facts) -> Iterator[Evidence]:
    """Amazon's plugin is installed or named, and NCCL uses sockets."""
    installed, sockets = facts.of("amazon_network"), facts.of("network_socket")
    if installed and sockets and not facts.has("net-plugin-no-provider"):
        told = installed[0].signature.id != "amazon-instance-with-efa"
        why = "Amazon's network plugin is named, and NCCL uses sockets" if told else "the instances have Amazon's network, and NCCL uses sockets"
        yield Evidence("net_plugin_not_loaded", STRONG, why, (installed[0], sockets[0]), "amazon-plugin-unused")
        yield Evidence("ib_misconfig", -SUPPORTING, why, (), "amazon-plugin-unused")


def nodes_meet_at_unlike_addresses(facts: Facts) -> Iterator[Evidence]:
    """Launch lines that name another address for each node: in scripts, and in lines of a report that have a node's rank and the address."""
    named: dict[int, tuple[str, dict[str, object]]] = {}
    found: list[tuple[str, str, dict[str, object]]] = []
    for file in facts.job:
        for trait in (one for one in file.traits if one.name == "meeting point"):
            rank, _, address = trait.value.partition(" ")
            found.append((rank, address, {"file": file.name, "line": trait.line, "text": trait.text}))
    for event in facts.of("meeting_told"):
        fields = event.fields
        found.append((fields["rank"] or fields["rank_"] or "0", fields["address"] or fields["address_"] or "", dict(evidence_of(event))))
    for rank, address, place in found:
        named.setdefault(int(rank), (re.sub(r":\d{1,5}$", "", address), place))
    if len({address for address, _ in named.values()}) > 1:
        shown = ", ".join(f"node rank {rank}: {address}" for rank, (address, _) in sorted(named.items())[:4])
        why = f"the nodes are given unlike addresses to meet at ({shown})"
        yield Evidence("launch_mismatch", STRONG, why, (), "unlike-meeting-points", (), tuple(place for _, (_, place) in sorted(named.items())[:4]))


def machine_waits_for_itself(facts: Facts) -> Iterator[Evidence]:
    """What a line says of a connection is of the machine to itself: no firewall, no route and no interface of another machine is between."""
    waits = [event for event in facts.events if {"firewall_ports", "wrong_interface"} & event.signature.for_.keys() and not event.quoted]
    own = [event for event in waits if _TO_ITSELF.search(event.text)]
    if own and len(own) == len(waits):
        why = "the machine connects to itself, so nothing lies between"
        yield Evidence("firewall_ports", -STRONG, why, (own[0],), "machine-waits-for-itself")
        yield Evidence("wrong_interface", -SUPPORTING, why, (own[0],), "machine-waits-for-itself")
