"""Rules over networks: adapters that exist but are not used, routes, interfaces, limits, and firewalls that pass ping."""

from __future__ import annotations

import re
from collections.abc import Iterator

from unhang.base.text import counted
from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rules.address_rules import private_network
from unhang.jobs.diagnose.rules.signs import hang_signs
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, SUPPORTING = WEIGHTS["strong"], WEIGHTS["supporting"]
_CLOSED_BY_ADDRESS = re.compile(r"[Cc]losed by remote peer \D{0,60}(\d{1,3})[.-](\d{1,3})[.-](\d{1,3})[.-]\d{1,3}\b")
EFA_GROUP = {
    "url": "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html",
    "says": "EFA needs a security group that allows all traffic, in and out, to and from the group itself",
}
_WANTED = ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_NET_GDR_LEVEL", "FI_PROVIDER", "FI_EFA_USE_DEVICE_RDMA", "NCCL_IB_TC")
_NO_WAY = (
    "nccl-connect-no-route",
    "nccl-connect-timed-out",
    "nccl-connect-refused",
    "gloo-cannot-connect",
    "any-network-unreachable",
    "any-connection-refused",
)


def rdma_not_used(facts: Facts) -> Iterator[Evidence]:
    """NCCL finds no RDMA adapter and ranks of different nodes talk over TCP, and an adapter is requested, visible, or the job is slow."""
    none, channels = facts.of("net_ib_none") or facts.of("network_socket"), facts.of("socket_channel")
    if not none or any("via NET/IB" in event.text for event in facts.of("transport")):
        return
    wanted: list[Event] = [event for event in facts.of("setting") if event.fields["name"] in _WANTED]
    wanted += [*facts.of("ib_adapter"), *facts.of("ib_port_up"), *facts.of("ib_link_up")]
    slow = [*facts.of("slow_told")]
    if wanted and (channels or slow or facts.of("several_nodes")):
        yield Evidence("ib_misconfig", STRONG, "an RDMA adapter is requested or present, and NCCL finds none", (none[0], wanted[0]), "rdma-not-used")
    elif channels and slow:
        yield Evidence("ib_misconfig", STRONG - 0.4, "the nodes talk over TCP, and the job is slow", (none[0], channels[0], slow[0]), "tcp-and-slow")


def two_interfaces_lead_to_one_network(facts: Facts) -> Iterator[Evidence]:
    """The kernel's routing table has one network on two interfaces of a host: answers may leave through the other one."""
    by_network: dict[tuple[str, str | None], dict[str, Event]] = {}
    for event in facts.of("route"):
        by_network.setdefault((event.file, event.fields["network"]), {}).setdefault(event.fields["interface"] or "", event)
    for (_file, network), by_interface in by_network.items():
        if len(by_interface) > 1:
            why = f"{' and '.join(sorted(by_interface)[:3])} both lead to {network}"
            yield Evidence("wrong_interface", WEIGHTS["decisive"], why, tuple(by_interface.values())[:2], "one-network-two-interfaces")
            return


def hosts_meet_in_different_networks(facts: Facts) -> Iterator[Evidence]:
    """The interfaces that NCCL chose on two hosts have addresses of different private networks, and connections between them fail."""
    failed = [event for event in facts.events if event.signature.fact in ("connect_retried", "socket_failed") or event.signature.id in _NO_WAY]
    by_network: dict[str, Event] = {}
    for event in facts.of("bootstrap"):
        by_network.setdefault(private_network(event.fields["address"] or ""), event)
    by_network.pop("", None)
    hosts = {event.prefix.host for event in by_network.values()}
    if failed and len(by_network) > 1 and len(hosts) > 1:
        why = f"ranks of different hosts meet over {' and '.join(sorted(by_network)[:2])}, and connections between them fail"
        yield Evidence("wrong_interface", STRONG, why, (*list(by_network.values())[:2], failed[0]), "different-networks")


def hosts_use_different_plugins(facts: Facts) -> Iterator[Evidence]:
    """Ranks of one job name different networks: a plugin is found on some hosts only, and the two sides do not understand each other."""
    by_name: dict[str, Event] = {}
    for event in facts.of("network_used"):
        by_name.setdefault((event.fields["value"] or "").strip(), event)
    hosts = {event.prefix.host for event in by_name.values()}
    if len(by_name) > 1 and len(hosts) > 1 and None not in hosts:
        why = f"hosts of one job use different networks: {', '.join(sorted(by_name)[:3])}"
        yield Evidence("net_plugin_not_loaded", STRONG, why, tuple(by_name.values())[:2], "different-plugins")


def chosen_among_several_and_refused(facts: Facts) -> Iterator[Evidence]:
    """NCCL had several interfaces to choose from, and connections to the other node fail: the first one is often not on the nodes' common network."""
    several, tried = facts.of("socket_interfaces"), facts.of("connect_retried")
    if several and tried:
        names = f"{several[0].fields['interface']} was taken, {several[0].fields['second']} was there too"
        yield Evidence(
            "wrong_interface", SUPPORTING + 1, f"{names}, and connections to the other node fail", (several[0], tried[0]), "first-of-several-interfaces"
        )


def ports_behind_a_working_ping(facts: Facts) -> Iterator[Evidence]:
    """The nodes answer a ping, and the job does not start: a firewall that passes ICMP may block TCP ports."""
    pings = facts.of("ping_works")
    failed = [event for event in facts.events if event.signature.kind == "symptom" and event.signature.fact in (None, "store_timeout", "connect_retried")]
    failed = [event for event in failed if not (event.quoted or event.source or event.signature.program.startswith("people"))]
    if pings and (failed or hang_signs(facts)):
        yield Evidence(
            "firewall_ports", SUPPORTING, "ping works between the nodes, and connections of the job do not", (pings[0], *failed[:1]), "ping-and-no-job"
        )


def _registers(event: Event) -> bool:
    """Whether a refused call is one that locks memory."""
    return "memlock_ulimit" in event.signature.for_ or any(call in event.text for call in ("ibv_create_cq", "ibv_create_qp", "ibv_reg_mr"))


def locked_memory_low_and_refused(facts: Facts) -> Iterator[Evidence]:
    """A low limit of locked memory, and memory that could not be registered: queues are made of registered memory too."""
    low = facts.of("memlock_low")
    refused = [event for event in facts.events if event.signature.kind == "error" and event.signature.fact != "memlock_low" and _registers(event)]
    if low and refused:
        limit = f"{low[0].fields['kbytes']} KiB" if "kbytes" in low[0].fields else counted(int(low[0].fields["bytes"] or 0), "byte")
        why = f"locked memory is limited to {limit}, and memory could not be registered"
        yield Evidence("memlock_ulimit", STRONG, why, (low[0], refused[0]), "memlock-low-and-refused")


def no_gpudirect_between_nodes(facts: Facts) -> Iterator[Evidence]:
    """Channels use RDMA but none uses GPUDirect, and the job is reported as slow."""
    channels = [event for event in facts.of("transport") if "via NET/IB" in event.text]
    slow = facts.of("slow_told")
    if channels and slow and not facts.of("gdr_enabled"):
        yield Evidence(
            "gdr_peermem_missing", STRONG - 0.4, "no channel between nodes uses GPUDirect RDMA, and the job is slow", (channels[0], slow[0]), "ib-without-gdr"
        )


def ethernet_beside_infiniband(facts: Facts) -> Iterator[Evidence]:
    """NCCL spreads its channels over InfiniBand and Ethernet adapters alike, and the job is slow or its connections fail: the Ethernet ones serve storage."""
    mixed = [event for event in facts.of("mixed_adapters") if not event.quoted]
    failed = [event for event in facts.events if event.signature.id in _NO_WAY and not event.quoted]
    if mixed and (signs := [*facts.of("slow_told"), *failed]):
        why = f"NCCL also uses the Ethernet adapter {mixed[0].fields['adapter']} beside InfiniBand ones"
        yield Evidence("wrong_interface", SUPPORTING, why, (mixed[0], signs[0]), "ethernet-beside-infiniband")


def sidecar_takes_connections(facts: Facts) -> Iterator[Evidence]:
    """A service mesh's proxy in the pod, and connections that are reset, or a job that does not start."""
    sidecars = facts.of("sidecar")
    reset = [event for event in facts.events if event.signature.kind in ("error", "symptom") and event.signature.fact != "sidecar" and not event.quoted]
    if sidecars and (reset or hang_signs(facts)):
        yield Evidence(
            "service_mesh_sidecar",
            STRONG,
            "a service mesh's proxy is in the pod, and the job's connections fail",
            (sidecars[0], *reset[:1]),
            "sidecar-and-fault",
        )


def gpudirect_and_protection_error(facts: Facts) -> Iterator[Evidence]:
    """GPUDirect RDMA is in use, and an access of the adapter is refused: ACS or the IOMMU redirect it."""
    refused = [event for event in facts.events if event.signature.id == "ib-completion-protection" and not event.quoted]
    if refused and facts.of("gdr_enabled"):
        why = "GPUDirect RDMA is in use, and the adapter was refused an access"
        yield Evidence("acs_iommu", SUPPORTING, why, (refused[0], facts.of("gdr_enabled")[0]), "gdr-and-protection")


def firewall_is_on_and_no_way(facts: Facts) -> Iterator[Evidence]:
    """A firewall is on, and a connection of the job is rejected or dropped."""
    on = [event for event in facts.events if event.signature.id in ("firewall-active", "firewall-service-on") and not event.quoted]
    failed = [event for event in facts.events if event.signature.id in (*_NO_WAY, "torch-client-socket-timeout", "rpc-cannot-connect") and not event.quoted]
    if on and failed:
        yield Evidence("firewall_ports", STRONG, "a firewall is on, and connections of the job fail", (on[0], failed[0]), "firewall-on-and-no-way")


def efa_behind_rules_for_addresses(facts: Facts) -> Iterator[Evidence]:
    """EFA's traffic has no IP addresses: a rule of a security group for addresses lets TCP pass and not EFA; that needs a rule for the group itself."""
    used, by_addresses = facts.of("efa_used"), [event for event in facts.of("group_by_addresses") if not event.quoted]
    failed = [event for event in facts.events if event.signature.kind in ("error", "symptom") and ("OFI" in event.text or "efa" in event.text)]
    failed = [event for event in failed if not event.quoted]
    if used and by_addresses and (failed or hang_signs(facts)):
        why = "the security group's rule is for addresses, which EFA's traffic does not have: it needs a rule for the group itself"
        yield Evidence("firewall_ports", STRONG, why, (by_addresses[0], *failed[:1]), "efa-and-rule-for-addresses", (EFA_GROUP,))


def stranger_closed_a_connection(facts: Facts) -> Iterator[Evidence]:
    """Before the ranks have met, NCCL loses a peer whose address is in no network of the job: a scanner or monitor that connected to the port."""
    networks = {".".join((event.fields["address"] or "").split(".")[:3]) for event in facts.of("bootstrap")}
    if not networks or facts.of("init_complete"):
        return
    for event in facts.events:
        found = None if event.quoted else _CLOSED_BY_ADDRESS.search(event.text)
        if found and ".".join(found.groups()) not in networks:
            why = "a peer closed its connection whose address is in no network of the job's ranks"
            yield Evidence("foreign_connections", WEIGHTS["hinting"], why, (event,), "stranger-closed")
            return
