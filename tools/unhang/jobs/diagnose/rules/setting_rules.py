"""Rules over settings of the environment that disable a feature of the machine, together with evidence that this matters."""

from __future__ import annotations

from collections.abc import Iterator

from unhang.jobs.diagnose.evidence import Evidence
from unhang.jobs.diagnose.log_facts import Facts
from unhang.jobs.diagnose.matching.scanning import Event
from unhang.jobs.diagnose.rules.signs import hang_signs
from unhang.jobs.diagnose.weights import WEIGHTS

STRONG, SUPPORTING = WEIGHTS["strong"], WEIGHTS["supporting"]
_SMALLEST_BUFFER = 1 << 20
_TOPOLOGY_FAILED = ("family-nccl-topology", "nccl-topology-trips", "nccl-topology-file-unreadable")
_OFF = {
    "NCCL_P2P_DISABLE": ("1",), "NCCL_P2P_LEVEL": ("LOC", "0"), "NCCL_SHM_DISABLE": ("1",), "NCCL_NVLS_ENABLE": ("0",), "NCCL_MAX_NCHANNELS": ("1", "2"),
    "NCCL_MAX_CTAS": ("1", "2"), "NCCL_PROTO": ("LL", "Simple", "LL128"), "NCCL_ALGO": ("Ring", "Tree", "RING", "TREE"), "NCCL_NTHREADS": ("64", "128"),
}  # fmt: skip


def _values(facts: Facts) -> list[tuple[str, str, Event]]:
    return [(event.fields["name"] or "", (event.fields["value"] or "").strip("\"'. "), event) for event in facts.of("setting") if not event.quoted]


def peer_to_peer_switched_off(facts: Facts) -> Iterator[Evidence]:
    """A variable disables peer-to-peer, GPUs of one node communicate through host memory, and the job is reported as slow or NVLink is unused."""
    off = [event for name, value, event in _values(facts) if name in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL") and value in _OFF[name]]
    shared = [event for event in facts.of("transport") if "via SHM" in event.text]
    if not (off and shared) or facts.of("p2p_disable_helps") or hang_signs(facts):
        return
    linked = [event for event in facts.of("topology") if any(word[:2] == "NV" and word[2:].isdigit() for word in (event.fields["value"] or "").split())]
    if linked:
        why = f"{off[0].fields['name']} switches off peer-to-peer, and GPUs that NVLink joins talk through host memory"
        yield Evidence("env_var_misconfig", WEIGHTS["decisive"], why, (off[0], shared[0], linked[0]), "nvlink-switched-off")
    elif facts.of("slow_told"):
        why = f"{off[0].fields['name']} switches off peer-to-peer, and the job is slow"
        yield Evidence("env_var_misconfig", STRONG, why, (off[0], shared[0], facts.of("slow_told")[0]), "p2p-off-and-slow")


def slow_and_held_back(facts: Facts) -> Iterator[Evidence]:
    """The job is slow, and a variable forbids an algorithm, a protocol, channels or large buffers."""
    slow = facts.of("slow_told")
    if not slow or hang_signs(facts):
        return
    for name, value, event in _values(facts):
        small = name == "NCCL_BUFFSIZE" and value.isdigit() and int(value) < _SMALLEST_BUFFER
        if small or (name in _OFF and name not in ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL") and value in _OFF[name]):
            yield Evidence("env_var_misconfig", SUPPORTING, f"the job is slow, and {name}={value} is set", (event, slow[0]), "slow-and-held-back")
            return


def launches_wait_for_each_other(facts: Facts) -> Iterator[Evidence]:
    """CUDA_LAUNCH_BLOCKING=1, and a thread waits in NCCL's own launch: the kernel waits for work that the launching thread has not launched yet."""
    blocking = [event for event in facts.of("launch_blocking") if not event.quoted]
    frames = [event for event in facts.of("nccl_frame") if not event.quoted]
    if blocking and frames:
        why = f"each launch waits for its kernel, and a thread waits in {frames[0].fields['function']}"
        yield Evidence("env_var_misconfig", STRONG + 1, why, (blocking[0], frames[0]), "launch-blocking-in-nccl")


def named_interface_is_there(facts: Facts) -> Iterator[Evidence]:
    """NCCL finds no interface for the setting, and the machine has one of that name that is up: the syntax of the setting is wrong, not the network."""
    up = {(event.fields["name"] or "").split("@")[0]: event for event in facts.of("interface") if event.fields["state"] == "UP" and event.fields["address"]}
    none = [event for event in facts.events if event.signature.id == "nccl-no-socket-interface" and not event.quoted]
    elsewhere = {event.fields["interface"] for event in facts.of("bootstrap")}  # a host takes it: another one lacks an interface of this name
    for name, value, event in _values(facts) if none else ():
        found = next((one for one in value.lstrip("=^").split(",") if name == "NCCL_SOCKET_IFNAME" and one in up and one not in elsewhere), None)
        if found:
            why = f"{name}={value} leads to no interface, and {found} is up and has an address"
            yield Evidence("env_var_misconfig", WEIGHTS["decisive"], why, (event, none[0], up[found]), "named-interface-is-there")
            yield Evidence("wrong_interface", -STRONG, why, (up[found],), "named-interface-is-there")
            return


def rdma_switched_off(facts: Facts) -> Iterator[Evidence]:
    """NCCL_IB_DISABLE=1, the machine has an RDMA adapter or the job is slow, and NCCL uses sockets."""
    off = [event for name, value, event in _values(facts) if name == "NCCL_IB_DISABLE" and value == "1"]
    reasons = [*facts.of("ib_adapter"), *facts.of("ib_port_up"), *facts.of("ib_link_up"), *facts.of("slow_told")]
    sockets = [*facts.of("socket_channel"), *facts.of("network_socket")]
    if off and sockets and reasons and not hang_signs(facts):
        why = "NCCL_IB_DISABLE=1 switches off RDMA, and the nodes talk over TCP"
        yield Evidence("env_var_misconfig", STRONG, why, (off[0], sockets[0], reasons[0]), "rdma-switched-off")
        yield Evidence("ib_misconfig", -SUPPORTING, why, (off[0],), "rdma-switched-off")


def file_of_another_machine(facts: Facts) -> Iterator[Evidence]:
    """NCCL takes topology or graph from a file that a variable names, and fails while it reads or searches it: the file is of another type of machine."""
    named = facts.of("graph_file")
    failed = [event for event in facts.events if event.signature.id in _TOPOLOGY_FAILED and not event.quoted]
    if named and failed:
        why = f"{named[-1].fields['name']} names {named[-1].fields['value']}, and NCCL fails on the topology"
        yield Evidence("env_var_misconfig", STRONG, why, (named[-1], failed[0]), "file-of-another-machine")
        yield Evidence("nccl_bug", -SUPPORTING, why, (named[-1],), "file-of-another-machine")


def mps_and_buffers_refused(facts: Facts) -> Iterator[Evidence]:
    """The job uses MPS, and memory of another process cannot be mapped: the daemon serves another user or container."""
    named, refused = facts.of("mps_named"), [event for event in facts.of("ipc_refused") if not event.quoted]
    if named and refused:
        why = "the job uses MPS, and a process cannot map another one's memory"
        yield Evidence("mps_unreachable", STRONG, why, (named[0], refused[0]), "mps-and-refused")


def named_adapter_is_not_there(facts: Facts) -> Iterator[Evidence]:
    """NCCL_IB_HCA names only adapters that the machine does not have, and NCCL finds none."""
    listed = {event.fields["name"] or "": event for event in facts.of("adapter_listed")}
    listed.update({event.fields["ca"] or event.fields["hca"] or "": event for event in facts.of("ib_adapter")})
    none = facts.of("net_ib_none")
    for name, value, event in _values(facts) if listed and none else ():
        wanted = [one.split(":")[0] for one in value.lstrip("=").split(",")] if name == "NCCL_IB_HCA" and not value.startswith("^") else []
        if wanted and not any(there.startswith(one) for there in listed for one in wanted):
            why = f"NCCL_IB_HCA={value} names no adapter of this machine, which has {', '.join(sorted(listed)[:3])}"
            yield Evidence("env_var_misconfig", STRONG + 1, why, (event, none[0], *list(listed.values())[:1]), "named-adapter-not-there")
            yield Evidence("ib_misconfig", -STRONG, why, (event,), "named-adapter-not-there")
            return
