"""Values of NCCL settings that differ from node to node, computed from a node's facts."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any


class CannotTell(ValueError):
    """The node's facts do not decide a value. The text has what was expected, what was found, and
    the key to set."""


@dataclass(frozen=True)
class DesiredState:
    """The operator's choice if the facts allow several: an address range, exact interfaces, exact
    HCAs."""

    network: str | None = None
    interfaces: Sequence[str] = ()
    hcas: Sequence[str] = ()


@dataclass
class ComputedValue:
    """A value (None: leave it unset), and the decisions that led to it, one line each."""

    value: str | None
    notes: list[str] = field(default_factory=list)


def interface(network: Mapping[str, Any], desired: DesiredState) -> ComputedValue:
    """ "=name[,name]": the interface in the named range, else those named, else the only usable
    one, else that of the default route. Raises CannotTell."""
    usable = network.get("usable_interfaces")
    rows = network.get("interfaces")
    if usable is None or rows is None:
        raise CannotTell(
            "the node's network interfaces could not be read; look at the audit's section network"
        )
    if desired.network:
        return ComputedValue("=" + ",".join(_in_range(rows, usable, desired.network)))
    if desired.interfaces:
        missing = [name for name in desired.interfaces if name not in usable]
        if missing:
            wanted = ", ".join(desired.interfaces)
            raise CannotTell(
                f"not all of {wanted} are up with an address; those that are:"
                f" {', '.join(usable) or 'none'}; correct network.interfaces"
            )
        return ComputedValue("=" + ",".join(desired.interfaces))
    if len(usable) == 1:
        return ComputedValue("=" + usable[0])
    routed = [row["name"] for row in rows if row.get("default_route") and row["name"] in usable]
    if len(routed) == 1:
        return ComputedValue(
            "=" + routed[0],
            [
                f"{routed[0]} carries the default route; also up:"
                f" {', '.join(name for name in usable if name != routed[0])}"
            ],
        )
    raise CannotTell(
        "NCCL needs one interface, and those that are up with an address are:"
        f" {', '.join(usable) or 'none'}; name network.interfaces in the policy"
    )


def _in_range(rows: Sequence[Mapping[str, Any]], usable: Sequence[str], text: str) -> list[str]:
    try:
        wanted = ipaddress.ip_network(text, strict=False)
    except ValueError as problem:
        raise CannotTell(
            f"{text!r} is not an address range such as 10.0.0.0/16: {problem}"
        ) from None
    found = [
        row["name"]
        for row in rows
        if row["name"] in usable
        and any(_is_in(address, wanted) for address in row.get("addresses") or ())
    ]
    if not found:
        raise CannotTell(
            f"no interface has an address in {text}; there is"
            f" {', '.join(usable) or 'no usable interface'}"
        )
    return found


def _is_in(address: str, wanted: Any) -> bool:
    try:
        one = ipaddress.ip_interface(address).ip
    except ValueError:
        return False
    return one.version == wanted.version and one in wanted


def _hcas(network: Mapping[str, Any], desired: DesiredState, layer: str) -> ComputedValue:
    """ "=mlx5_0:1,…": active ports of this link layer, infiniband or ethernet (RoCE), of the
    fastest rate."""
    ports = chosen_ports(network, layer, desired)
    fastest = max(rate for _name, _port, rate in ports)
    taken = ports if desired.hcas else [row for row in ports if row[2] == fastest]
    slower = [
        f"{name}:{port} ({rate:g} Gbit/s)"
        for name, port, rate in ports
        if (name, port, rate) not in taken
    ]
    notes = [f"slower than {fastest:g} Gbit/s and left out: {', '.join(slower)}"] if slower else []
    return ComputedValue("=" + ",".join(f"{name}:{port}" for name, port, _rate in taken), notes)


def chosen_ports(
    network: Mapping[str, Any], layer: str, desired: DesiredState
) -> list[tuple[str, int, float]]:
    """[(device, port, rate in Gbit/s)] of active ports of a link layer, of the named devices when
    some are named. Raises CannotTell."""
    if network.get("rdma") is None:
        raise CannotTell(
            "the node's RDMA devices could not be read; look at the audit's section network"
        )
    ports = [
        (device["name"], port["port"], float(port.get("rate_gbps") or 0))
        for device in network["rdma"]
        for port in device.get("ports") or ()
        if port.get("state") == "active" and port.get("link_layer") == layer
    ]
    missing = [
        name for name in desired.hcas if name not in {device for device, _port, _rate in ports}
    ]
    if missing:
        active = ", ".join(sorted({name for name, _port, _rate in ports})) or "none"
        raise CannotTell(f"{', '.join(missing)} has no active {layer} port; active are: {active}")
    if not ports:
        raise CannotTell(
            f"no RDMA port of link layer {layer} is active; choose another profile, or look at"
            " cables and switch"
        )
    return [row for row in ports if not desired.hcas or row[0] in desired.hcas]


def gid_index(network: Mapping[str, Any], desired: DesiredState) -> ComputedValue:
    """Index of the RoCE v2 GID with an IPv4 address, if all chosen ports have it at the same index.
    Raises CannotTell."""
    chosen = {(name, port) for name, port, _rate in chosen_ports(network, "ethernet", desired)}
    by_port: dict[str, list[int]] = {}
    for device in network["rdma"]:
        for port in device.get("ports") or ():
            if (device["name"], port["port"]) in chosen:
                gids = port.get("gids") or ()
                by_port[f"{device['name']}:{port['port']}"] = [
                    row["index"]
                    for row in gids
                    if row.get("type") == "roce_v2" and _is_ipv4(row.get("gid"))
                ]
    common = set.intersection(*(set(indices) for indices in by_port.values()))
    if not common:
        found = "; ".join(
            f"{name}: {', '.join(map(str, indices)) or 'none'}" for name, indices in by_port.items()
        )
        raise CannotTell(
            f"no index has a RoCE v2 GID with an IPv4 address on all ports: {found}; name HCAs that"
            " agree, or use NCCL 2.21"
        )
    return ComputedValue(str(min(common)))


def _is_ipv4(gid: object) -> bool:
    try:
        return ipaddress.IPv6Address(str(gid)).ipv4_mapped is not None
    except ValueError:
        return False


COMPUTED: dict[str, Callable[[Mapping[str, Any], DesiredState], ComputedValue]] = {
    "interface": interface,
    "hcas_infiniband": partial(_hcas, layer="infiniband"),
    "hcas_roce": partial(_hcas, layer="ethernet"),
    "gid_index": gid_index,
}
