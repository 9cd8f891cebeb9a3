"""Machines of the demo fleet as sysfs and procfs show them: PCI bus, CPUs, memory, network."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from trees import Link, Tree

NVIDIA, BRIDGE = "0x10de", "0x068000"


@dataclass(frozen=True)
class Slot:
    """One PCI device. lanes and speeds: (now, most) in lanes and GT/s; above: the bridge over it,
    acs: that bridge's control word or None."""

    address: str
    device: str
    pci_class: str = "0x030200"
    vendor: str = NVIDIA
    node: int = 0
    cpus: str = "0-127"
    lanes: tuple[int, int] | None = None
    speeds: tuple[str, str] | None = None
    above: str | None = None
    acs: int | None = None


def machine(
    vendor: str, product: str, cpu: str, cpus: int, nodes: int, memory_gib: int, is_vm: bool = False
) -> Tree:
    """DMI, CPUs and memory."""
    flags = "fpu vme sse4_2 avx2" + (" hypervisor" if is_vm else "")
    maker = "AuthenticAMD" if "AMD" in cpu else "GenuineIntel"
    kib = memory_gib << 20
    tree: Tree = {
        "sys/class/dmi/id/sys_vendor": vendor + "\n",
        "sys/class/dmi/id/product_name": product + "\n",
        "sys/class/dmi/id/board_name": product + "\n",
        "sys/class/dmi/id/bios_version": "1.10\n",
        "proc/cpuinfo": (
            f"processor\t: 0\nvendor_id\t: {maker}\nmodel name\t: {cpu}\nflags\t\t: {flags}\n\n"
        ),
        "sys/devices/system/cpu/online": f"0-{cpus - 1}\n",
        "sys/devices/system/cpu/cpu0/topology/physical_package_id": "0\n",
        "sys/devices/system/cpu/cpu0/topology/package_cpus_list": f"0-{cpus - 1}\n",
        "proc/meminfo": meminfo(kib, kib * 9 // 10, 8 << 20),
    }
    return tree | {
        f"sys/devices/system/node/node{node}/cpulist": f"0-{cpus - 1}\n" for node in range(nodes)
    }


def meminfo(total_kib: int, available_kib: int, swap_kib: int) -> str:
    """/proc/meminfo, the lines that are read."""
    return (
        f"MemTotal:       {total_kib} kB\nMemFree:        {available_kib} kB\nMemAvailable:  "
        f" {available_kib} kB\nSwapTotal:      {swap_kib} kB\nSwapFree:       {swap_kib}"
        " kB\nHugePages_Total:       0\n"
    )


def bus(slots: list[Slot]) -> Tree:
    """The PCI bus. A slot below a bridge lies in that bridge's folder, as in sysfs."""
    tree: Tree = {}
    for slot in slots:
        folder = f"sys/devices/pci0000:00/{slot.above + '/' if slot.above else ''}{slot.address}"
        tree[f"sys/bus/pci/devices/{slot.address}"] = Link(f"../../../../{folder}")
        tree |= {f"{folder}/{name}": text + "\n" for name, text in _fields(slot).items()}
        if slot.above:
            bridge = f"sys/devices/pci0000:00/{slot.above}"
            tree[f"sys/bus/pci/devices/{slot.above}"] = Link(f"../../../../{bridge}")
            tree |= {
                f"{bridge}/vendor": "0x1022\n",
                f"{bridge}/class": "0x060400\n",
                f"{bridge}/modalias": "pci:v00001022d00001483bc06sc04i00\n",
            }
            if slot.lanes and slot.speeds:
                tree |= {
                    f"{bridge}/max_link_width": f"{slot.lanes[1]}\n",
                    f"{bridge}/max_link_speed": f"{slot.speeds[1]} GT/s PCIe\n",
                }
            tree[f"{bridge}/config"] = bridge_config(slot.acs)
    return tree


def _fields(slot: Slot) -> dict[str, str]:
    pci_class = slot.pci_class[2:]
    fields = {
        "vendor": slot.vendor,
        "device": slot.device,
        "class": slot.pci_class,
        "modalias": (
            f"pci:v0000{slot.vendor[2:].upper()}d0000{slot.device[2:].upper()}bc{pci_class[:2]}sc{pci_class[2:4]}i{pci_class[4:]}"
        ),
        "numa_node": str(slot.node),
        "local_cpulist": slot.cpus,
    }
    if slot.lanes:
        fields |= {"current_link_width": str(slot.lanes[0]), "max_link_width": str(slot.lanes[1])}
    if slot.speeds:
        fields |= {
            "current_link_speed": f"{slot.speeds[0]} GT/s PCIe",
            "max_link_speed": f"{slot.speeds[1]} GT/s PCIe",
        }
    return fields


def bridge_config(control: int | None) -> bytes:
    """Configuration space of a bridge with its ACS capability, switched as `control` says; None: a
    bridge without ACS."""
    if control is None:
        return bytes(0x104)
    return bytes(0x100) + struct.pack("<IHH", 0x0001000D, 0x005F, control)


def interface(
    name: str, address: str, network: str, speed_mbps: int, default: bool = False
) -> tuple[str, str, str, int, bool]:
    """One interface: address as 10.1.0.5, network as 10.1.0.0."""
    return name, address, network, speed_mbps, default


def network(rows: list[tuple[str, str, str, int, bool]]) -> Tree:
    """Interfaces in /24 networks, with the routes and local addresses of /proc/net."""
    routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    tries = "Local:\n"
    tree: Tree = {
        "sys/class/net/lo/operstate": "unknown\n",
        "sys/class/net/lo/type": "772\n",
        "sys/class/net/lo/mtu": "65536\n",
    }
    for name, address, net, speed, default in rows:
        folder = f"sys/class/net/{name}"
        tree |= {
            f"{folder}/operstate": "up\n",
            f"{folder}/type": "1\n",
            f"{folder}/mtu": "1500\n",
            f"{folder}/carrier_changes": "2\n",
        }
        tree |= {f"{folder}/speed": f"{speed}\n", f"{folder}/device/numa_node": "0\n"}
        if default:
            routes += (
                f"{name}\t00000000\t{swapped(net[:-1] + '1')}\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
            )
        routes += f"{name}\t{swapped(net)}\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\n"
        tries += f"           |-- {address}\n              /32 host LOCAL\n"
    return tree | {
        "proc/net/route": routes,
        "proc/net/fib_trie": tries + "           |-- 127.0.0.1\n              /32 host LOCAL\n",
    }


def swapped(address: str) -> str:
    """An address as /proc/net/route writes it."""
    return "".join(f"{int(part):02X}" for part in reversed(address.split(".")))


def infiniband(count: int, rate: str = "400 Gb/sec (4X NDR)") -> Tree:
    """RDMA devices mlx5_0 to mlx5_<count - 1>, each with one active port."""
    tree: Tree = {}
    for number in range(count):
        folder = f"sys/class/infiniband/mlx5_{number}"
        port = f"{folder}/ports/1"
        tree |= {
            f"{folder}/fw_ver": "28.39.3560\n",
            f"{folder}/board_id": "MT_0000000838\n",
            f"{folder}/device/numa_node": "0\n",
        }
        tree |= {
            f"{port}/state": "4: ACTIVE\n",
            f"{port}/phys_state": "5: LinkUp\n",
            f"{port}/link_layer": "InfiniBand\n",
        }
        tree |= {f"{port}/rate": rate + "\n", f"{port}/lid": f"0x{16 + number:x}\n"}
    return tree
