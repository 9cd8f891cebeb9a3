"""RDMA devices and their ports, from sysfs. Part of section `network`."""

from __future__ import annotations

import stat

from ...base.parse.values import clean, integer_or_none
from ..parse.pci_config import parse_ats
from .cpu import read_cpuinfo
from .pci import CONFIG_BYTES, pci_address_of, read_pci_link
from .reading import integer_if_there, line_if_there, link_name, names_if_there, there
from .virtualization import hypervisor_flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

CLASS = "/sys/class/infiniband"
DEVICES, PORTS, GIDS = 64, 16, 64
# A GID table has 128 or 256 entries, each read separately; the used ones are at its beginning, with
# gaps only where an address was removed.
EMPTY_IN_A_ROW = 8
# the path of the second contains no port number
ZERO_GIDS = ("0000:0000:0000:0000:0000:0000:0000:0000", "fe80:0000:0000:0000:0000:0000:0000:0000")
COUNTERS = [
    "symbol_error",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_discards",
    "port_xmit_wait",
    "VL15_dropped",
    "port_xmit_packets",
    "port_rcv_packets",
]
HW_COUNTERS = [
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "out_of_buffer",
    "implied_nak_seq_err",
    "duplicate_request",
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "rp_cnp_handled",
    "rp_cnp_ignored",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "rx_icrc_encapsulated",
    "req_cqe_error",
    "resp_cqe_error",
    "req_remote_access_errors",
    "rx_dropped_pkts",
    "lifespan_expired",
    "req_transport_retries_exceeded",
    "req_rnr_retries_exceeded",
]
# Counters of AWS' cards, which have none of the above (drivers/infiniband/hw/efa/efa_verbs.c).
EFA_COUNTERS = [
    "rx_drops",
    "rdma_read_wr_err",
    "rdma_write_wr_err",
    "retrans_timeout_events",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
]
FOR_ALL = stat.S_IROTH | stat.S_IWOTH


def read_rdma(root: Root, unread: Unread) -> list[dict[str, Any]]:
    """[{name, driver, firmware, board, pci_address, pcie, numa_node, ats_enabled, ports}]; [] on a
    node without RDMA. Raises OSError."""
    try:
        names = root.names(CLASS)
    except FileNotFoundError:
        if there(root, "/sys/class/net") or there(root, "/sys/class"):
            return []
        raise
    return [read_device(root, unread, name) for name in names[:DEVICES]]


def read_device(root: Root, unread: Unread, name: str) -> dict[str, Any]:
    """One RDMA device with its ports."""
    folder = CLASS + "/" + name
    node = integer_if_there(root, folder + "/device/numa_node")
    driver = link_name(root, folder + "/device/driver")
    if driver is None:
        unread.add("rdma[*].driver", "absent", "no link to a driver below the device")
    address = pci_address_of(root, folder + "/device") if there(root, folder + "/device") else None
    if address is None:
        unread.add("rdma[*].pcie", "absent", "a software device has no slot")
    numbers = sorted(
        number
        for number in map(integer_or_none, names_if_there(root, folder + "/ports"))
        if number is not None
    )
    return {
        "name": clean(name, 64),
        "driver": driver,
        "firmware": line_if_there(root, folder + "/fw_ver"),
        "board": line_if_there(root, folder + "/board_id"),
        "pci_address": address,
        "pcie": read_pci_link(root, address) if address else None,
        "numa_node": node if node is not None and node >= 0 else None,
        "ats_enabled": read_ats(root, unread, name),
        "programs": read_programs_if_recorded(root, unread, name, folder),
        "ports": [
            read_port(root, unread, name, number, EFA_COUNTERS if driver == "efa" else HW_COUNTERS)
            for number in numbers[:PORTS]
        ],
    }


def read_ats(root: Root, unread: Unread, name: str) -> bool | None:
    """Whether the device's address translation is enabled; read only in virtual machines, where
    GPUDirect needs it."""
    field = "rdma[*].ats_enabled"
    if not unread.attempt(field, lambda: hypervisor_flag(read_cpuinfo(root)) or False):
        unread.add(field, "absent", "asked only in virtual machines")
        return None
    return unread.attempt(
        field, lambda: parse_ats(root.data(f"{CLASS}/{name}/device/config", CONFIG_BYTES))
    )


def read_programs_if_recorded(root: Root, unread: Unread, name: str, folder: str) -> str | None:
    """read_programs(), but a recording without device files says nothing about them."""
    if not root.is_live and not root.is_dir("/dev/infiniband"):
        unread.add("rdma[*].programs", "absent", "the recording has no /dev/infiniband")
        return None
    return unread.attempt(f"rdma[{name}].programs", read_programs, root, folder)


def read_programs(root: Root, folder: str) -> str:
    """open, restricted or missing: the device file by which programs use the device,
    /dev/infiniband/uverbs0. Raises OSError."""
    names = [
        name
        for name in names_if_there(root, folder + "/device/infiniband_verbs")
        if name.startswith("uverbs")
    ]
    if not names:
        return "missing"
    try:
        mode = root.stat("/dev/infiniband/" + names[0]).st_mode
    except FileNotFoundError:
        return "missing"
    return "open" if mode & FOR_ALL == FOR_ALL else "restricted"


def read_port(
    root: Root, unread: Unread, device: str, number: int, hw_counters: list[str]
) -> dict[str, Any]:
    """One port: state, speed, GIDs that are set, and error counters."""
    folder = f"{CLASS}/{device}/ports/{number}"
    layer = (line_if_there(root, folder + "/link_layer") or "").lower()
    lid, manager = line_if_there(root, folder + "/lid"), line_if_there(root, folder + "/sm_lid")
    return {
        "port": number,
        "state": word_after_number(line_if_there(root, folder + "/state")),
        "physical_state": word_after_number(line_if_there(root, folder + "/phys_state")),
        "link_layer": layer
        if layer in ("infiniband", "ethernet")
        else ("unknown" if layer else None),
        "rate_gbps": unread.attempt(
            f"rdma[{device}].ports[{number}].rate_gbps", read_rate, root, folder + "/rate"
        ),
        "lid": integer_or_none(lid[2:], 16)
        if lid and lid.startswith("0x")
        else integer_or_none(lid or ""),
        "sm_lid": integer_or_none(manager[2:], 16)
        if manager and manager.startswith("0x")
        else integer_or_none(manager or ""),
        "gids": read_gids(root, folder, layer),
        "counters": read_counters(root, folder, hw_counters),
    }


def word_after_number(line: str | None) -> str | None:
    """active from "4: ACTIVE", linkup from "5: LinkUp"; None from an empty line."""
    return ((line or "").partition(":")[2].strip() or line or "").lower() or None


def read_rate(root: Root, path: str) -> float:
    """400.0 from "400 Gb/sec (4X NDR)". Raises OSError and ValueError."""
    line = root.text(path, 256).strip()
    rate = float(line.split()[0]) if line else -1.0
    if not 0 <= rate < 1e6 or "Gb/sec" not in line:
        raise ValueError(f"{path} must give Gb/sec, and gives {line[:40]!r}")
    return rate


def read_gids(root: Root, folder: str, layer: str | None) -> list[dict[str, Any]]:
    """[{index, gid, type, interface}] of the GIDs that are set."""
    gids: list[dict[str, Any]] = []
    empty, index = 0, 0
    while empty < EMPTY_IN_A_ROW and len(gids) < GIDS:
        gid = line_if_there(root, f"{folder}/gids/{index}")
        if gid is None:
            break
        if gid in ZERO_GIDS:
            empty += 1
        else:
            empty = 0
            gids.append(read_gid(root, folder, layer, index, gid))
        index += 1
    return gids


def read_gid(root: Root, folder: str, layer: str | None, index: int, gid: str) -> dict[str, Any]:
    """One GID with its type and its interface."""
    kind = line_if_there(root, f"{folder}/gid_attrs/types/{index}") or ""
    if kind == "RoCE v2":
        kind = "roce_v2"
    elif kind == "IB/RoCE v1":
        kind = "ib" if layer == "infiniband" else "roce_v1"
    return {
        "index": index,
        "gid": clean(gid, 64),
        "type": kind or ("ib" if layer == "infiniband" else None),
        "interface": line_if_there(root, f"{folder}/gid_attrs/ndevs/{index}"),
    }


def read_counters(root: Root, folder: str, hw_counters: list[str]) -> dict[str, int]:
    """{counter: value} of those that the device has."""
    values = {}
    for group, names in (("counters", COUNTERS), ("hw_counters", hw_counters)):
        if not there(root, folder + "/" + group):
            continue
        for name in names:
            value = integer_if_there(root, f"{folder}/{group}/{name}")
            if value is not None:
                values[name] = value
    return values
