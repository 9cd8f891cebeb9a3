"""Section `network`: interfaces with their addresses, and whether GPUs can reach the network
without the CPU (RDMA)."""

from __future__ import annotations

import _socket as socket  # as parse/addresses does
import re

from ...base.parse.nvidia_driver import parse_loaded
from ...base.parse.values import clean, integer_or_none, parse_assignments
from ..parse.addresses import (
    is_routable,
    match_ipv4,
    netlink_request,
    parse_default_interfaces,
    parse_if_inet6,
    parse_local_addresses,
    parse_netlink,
    parse_routes,
    shared_subnets,
)
from .installed_kernels import module_needs
from .name_service import read_firewalls
from .pci import pci_address_of
from .rdma import read_rdma
from .reading import integer_if_there, line_if_there, link_name, text_if_there, there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

NET = "/sys/class/net"
INTERFACES = 512
ARP_INFINIBAND, ARP_LOOPBACK = 32, 772
KINDS = {"bond": "bond", "bridge": "bridge", "vlan": "vlan"}
# Interfaces that container engines, hypervisors and overlays create for themselves; they do not
# reach other nodes.
LOCAL_STEMS = [
    "docker",
    "br-",
    "veth",
    "cni",
    "cali",
    "cilium",
    "lxc",
    "flannel",
    "weave",
    "kube-",
    "nodelocaldns",
    "virbr",
    "vnet",
    "tap",
    "tun",
    "ifb",
    "dummy",
    "podman",
    "gre",
    "gretap",
    "erspan",
    "sit",
    "ip6tnl",
    "vxlan",
    "geneve",
    "ovs",
    "nerdctl",
    "azv",
    "gke",
    "lo",
]
DMABUF_KERNEL = (5, 12)
PEERS = "/sys/kernel/mm/memory_peers"
EFA_LISTING = "/opt/amazon/efa_installed_packages"
EFA_INSTALLER = re.compile(r"EFA installer version: {0,8}v?(\d{1,4}(?:\.\d{1,4}){1,3})")
EFA_PLUGIN = re.compile(r"(?:libnccl-ofi|aws-ofi-nccl)[_-]v?(\d{1,4}(?:\.\d{1,4}){1,3})")


def read_network(root: Root, unread: Unread) -> dict[str, Any]:
    """The section's fields, except probe."""
    interfaces = unread.attempt("interfaces", read_interfaces, root, unread)
    rdma = unread.attempt("rdma", read_rdma, root, unread)
    layers = (
        None
        if rdma is None
        else [port["link_layer"] for device in rdma for port in device["ports"] or []]
    )
    return {
        "interfaces": interfaces,
        "usable_interfaces": (
            None
            if interfaces is None
            else [row["name"] for row in interfaces if is_usable(root, row)]
        ),
        "shared_subnets": None if interfaces is None else shared_subnets(interfaces),
        "has_rdma": None if rdma is None else bool(rdma),
        "has_infiniband": None if layers is None else "infiniband" in layers,
        "rdma": rdma,
        "firewalls": unread.attempt("firewalls", read_firewalls, root),
        "peermem": unread.attempt("peermem", read_peermem, root, unread),
        "efa": unread.attempt("efa", read_efa, root, unread),
        "dmabuf": read_dmabuf(root, unread),
    }


def read_interfaces(root: Root, unread: Unread) -> list[dict[str, Any]]:
    """[{name, kind, state, speed_mbps, mtu, addresses, numa_node, driver, pci_address, master,
    carrier_changes, frames_received, frames_damaged, default_route}], real ports first. Raises
    OSError."""
    names = [name for name in root.names(NET) if there(root, NET + "/" + name + "/operstate")]
    addresses = unread.attempt("interfaces[*].addresses", read_addresses, root, unread)
    defaults = unread.attempt("interfaces[*].default_route", read_default_interfaces, root)
    # A node with a thousand containers has a thousand veths; interfaces with a device or an address
    # of their own come first.
    names.sort(
        key=lambda name: (
            not there(root, NET + "/" + name + "/device"),
            name not in (addresses or {}),
            name,
        )
    )
    rows = []
    for name in names[:INTERFACES]:
        row = read_interface(root, name)
        row["addresses"] = None if addresses is None else addresses.get(name, [])[:64]
        row["default_route"] = None if defaults is None else name in defaults
        rows.append(row)
    return rows


def read_interface(root: Root, name: str) -> dict[str, Any]:
    """One interface, from sysfs. A link that is down, and a virtual one, has no speed: null."""
    folder = NET + "/" + name
    has_device = there(root, folder + "/device")
    kind = kind_of(root, folder, has_device)
    speed = (
        integer_if_there(root, folder + "/speed")
        if kind in ("physical", "bond", "infiniband")
        else None
    )
    node = integer_if_there(root, folder + "/device/numa_node") if has_device else None
    return {
        "name": clean(name, 64),
        "kind": kind,
        "state": line_if_there(root, folder + "/operstate"),
        "speed_mbps": speed if speed is not None and 0 < speed < 0xFFFFFFFF else None,
        "mtu": integer_if_there(root, folder + "/mtu"),
        "numa_node": node if node is not None and node >= 0 else None,
        "driver": link_name(root, folder + "/device/driver") if has_device else None,
        "pci_address": pci_address_of(root, folder + "/device") if has_device else None,
        "master": link_name(root, folder + "/master"),
        "carrier_changes": integer_if_there(root, folder + "/carrier_changes"),
        "frames_received": (
            integer_if_there(root, folder + "/statistics/rx_packets")
            if kind == "physical"
            else None
        ),
        "frames_damaged": (
            integer_if_there(root, folder + "/statistics/rx_crc_errors")
            if kind == "physical"
            else None
        ),
    }


def kind_of(root: Root, folder: str, has_device: bool) -> str:
    """physical, bond, bridge, vlan, virtual, loopback, infiniband or other."""
    number = integer_if_there(root, folder + "/type")
    if number == ARP_LOOPBACK:
        return "loopback"
    if number == ARP_INFINIBAND:
        return "infiniband"
    if has_device:
        return "physical"
    named = parse_assignments(text_if_there(root, folder + "/uevent")).get("DEVTYPE")
    if named in KINDS:
        return KINDS[named]
    for mark, kind in (("/bonding", "bond"), ("/bridge", "bridge")):
        if there(root, folder + mark):
            return kind
    return "virtual" if number is not None else "other"


def is_usable(root: Root, row: dict[str, Any]) -> bool:
    """True for an interface that is up, has a routable address, is no slave and was not created for
    containers."""
    if row["kind"] == "loopback" or row["state"] not in ("up", "unknown") or not row["addresses"]:
        return False
    if (
        row["kind"] in ("virtual", "bridge")
        and row["name"].startswith(tuple(LOCAL_STEMS))
        and not row["default_route"]
    ):
        return False
    return any(is_routable(address) for address in row["addresses"]) and not there(
        root, NET + "/" + row["name"] + "/master"
    )


def net_folder(root: Root) -> str:
    """Path of /proc/net; in a mounted procfs that of process 1, because "self" belongs to another
    network namespace there."""
    return (
        "/proc/1/net"
        if "/proc" in root.mounts and there(root, "/proc/1/net/route")
        else "/proc/net"
    )


def read_default_interfaces(root: Root) -> list[str]:
    """Names of the interfaces with a default route. Raises OSError."""
    folder = net_folder(root)
    return parse_default_interfaces(
        root.text(folder + "/route", 1 << 20), text_if_there(root, folder + "/ipv6_route", 1 << 18)
    )


def read_addresses(root: Root, unread: Unread) -> dict[str, list[str]]:
    """{interface: ["10.0.0.1/24"]}: from the kernel by netlink on this machine, from its tables in
    /proc/net otherwise. Raises OSError."""
    if root.is_live and not root.mounts:
        try:
            return ask_kernel(root)
        except (OSError, ValueError):
            pass  # in a sandbox without netlink the tables are the next best source
    folder = net_folder(root)
    found, unclear = match_ipv4(
        parse_local_addresses(root.text(folder + "/fib_trie")),
        parse_routes(root.text(folder + "/route", 1 << 20)),
    )
    if unclear:
        unread.add(
            "interfaces[*].addresses",
            "error",
            "no single interface's route covers " + clean(" ".join(unclear[:32]), 900),
        )
    for name, addresses in parse_if_inet6(
        text_if_there(root, folder + "/if_inet6", 1 << 18)
    ).items():
        found.setdefault(name, []).extend(addresses)
    return found


def ask_kernel(root: Root) -> dict[str, list[str]]:
    """{interface: ["10.0.0.1/24"]} by one netlink dump. Raises OSError."""
    root.watch("netlink RTM_GETADDR")
    names = dict(socket.if_nameindex())
    found: dict[str, list[str]] = {}
    done, datagrams = False, 0
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    try:
        kernel.settimeout(2)
        kernel.send(netlink_request())
        while not done and datagrams < 4096:
            rows, done = parse_netlink(kernel.recv(1 << 16))
            datagrams += 1
            for number, address in rows:
                found.setdefault(names.get(number, str(number)), []).append(address)
    finally:
        kernel.close()
    return found


def read_peermem(root: Root, unread: Unread) -> dict[str, Any]:
    """{loaded, module, registered, linked} of nvidia_peermem, or the older nv_peer_mem. Raises
    OSError."""
    if not root.exists("/sys/module"):
        raise FileNotFoundError(2, "no such folder", "/sys/module")
    module = next(
        (name for name in ("nvidia_peermem", "nv_peer_mem") if root.exists("/sys/module/" + name)),
        None,
    )
    registered = None
    if module and root.exists(PEERS):
        registered = root.exists(PEERS + "/nv_mem") or root.exists(PEERS + "/nv_mem_nc")
    else:
        unread.add(
            "peermem.registered",
            "absent",
            (
                f"no {PEERS}: this RDMA stack keeps no list of peers"
                if module
                else "the module is not loaded"
            ),
        )
    return {
        "loaded": module is not None,
        "module": module,
        "registered": registered,
        "linked": read_linked(root, unread),
    }


def read_linked(root: Root, unread: Unread) -> bool | None:
    """Whether the nvidia-peermem module on disk uses the RDMA stack: built without its headers it
    does nothing and refuses to load."""
    release = line_if_there(root, "/proc/sys/kernel/osrelease") or ""
    before = len(unread.rows)
    linked = (
        unread.attempt("peermem.linked", module_needs, root, release, "nvidia-peermem", "ib_core")
        if root.exists("/sys/class/infiniband")
        else None
    )
    if linked is None and len(unread.rows) == before:
        unread.add(
            "peermem.linked",
            "absent",
            "no RDMA device, or no nvidia-peermem among the modules of this kernel",
        )
    return linked


def read_dmabuf(root: Root, unread: Unread) -> dict[str, Any]:
    """{possible, why_not}: the driver can export GPU memory to a network card as DMA-BUF from
    kernel 5.12 on, and only with its open modules."""
    release = line_if_there(root, "/proc/sys/kernel/osrelease")
    numbers = [integer_or_none(word) for word in (release or "").partition("-")[0].split(".")[:2]]
    if len(numbers) < 2 or None in numbers:
        unread.add("dmabuf.possible", "absent", "the kernel's release was not read")
        return {"possible": None, "why_not": None}
    if tuple(numbers) < DMABUF_KERNEL:
        return {"possible": False, "why_not": f"kernel {release} is older than 5.12"}
    try:
        flavour = parse_loaded(root.text("/proc/driver/nvidia/version", 8192))[2]
    except (OSError, ValueError) as problem:
        unread.of_error("dmabuf.possible", problem)
        return {"possible": None, "why_not": None}
    if flavour != "open":
        return {
            "possible": False,
            "why_not": (
                f"the loaded driver has the {flavour or 'unknown'} kernel modules, not the open"
                " ones"
            ),
        }
    return {"possible": True, "why_not": None}


def read_efa(root: Root, unread: Unread) -> dict[str, str | None] | None:
    """{installer, plugin} of the listing that the installer of the Elastic Fabric Adapter leaves;
    null without it. Raises OSError."""
    if not root.exists(EFA_LISTING):
        unread.add("efa", "absent", "no " + EFA_LISTING)
        return None
    found = parse_efa_listing(root.text(EFA_LISTING, 65536))
    for field, value in found.items():
        if value is None:
            unread.add("efa." + field, "absent", f"{EFA_LISTING} does not name it")
    return found


def parse_efa_listing(text: str) -> dict[str, str | None]:
    """{installer, plugin}: versions of the installer and of aws-ofi-nccl, None for what the listing
    does not name."""
    installer, plugin = EFA_INSTALLER.search(text), EFA_PLUGIN.search(text)
    return {
        "installer": installer.group(1) if installer else None,
        "plugin": plugin.group(1) if plugin else None,
    }
