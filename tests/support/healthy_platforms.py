"""Facts of healthy nodes of platforms that differ from the usual: B200, Grace, RTX PRO, and virtual
machines of AWS and Google."""

from __future__ import annotations

from healthy_nodes import HEALTHY, gpu_node
from healthy_sections import (
    gpu,
    interconnect_section,
    interface,
    network_section,
    node_section,
    package,
    rdma_device,
)

FABRIC = {
    "state": "completed",
    "status": "success",
    "clique": 0,
    "cluster": "00000000-0000-0000-0000-000000000000",
    "health_mask": 0,
}
ARM_KERNEL = "6.8.0-1044-nvidia-64k"
AWS_KERNEL = "6.8.0-1044-aws"


def on_kernel(document, release):
    """The document with another kernel, wherever it occurs."""
    kernel = document["sections"]["kernel"]
    kernel["release"] = kernel["boot"]["default_release"] = release
    kernel["installed"][0].update(release=release, image=f"/boot/vmlinuz-{release}")
    kernel["dkms"][0]["kernel"] = release
    document["sections"]["driver"]["on_disk"].update(
        kernel=release, path=f"/lib/modules/{release}/updates/dkms/nvidia.ko"
    )
    return document


def infiniband(count, rate=400.0):
    return network_section(
        [interface("bond0", "10.0.0.1/24", default=True)],
        ["bond0"],
        [rdma_device(number, "infiniband", rate) for number in range(count)],
    )


def h200_infiniband():
    devices = [
        gpu(index, "NVIDIA H200", "hopper", "9.0", 143771.0, 5, 700.0, dict(FABRIC))
        for index in range(8)
    ]
    for one in devices:
        one["bar1_total_mib"] = 262144.0
    links = interconnect_section(
        devices, 18, speed_mb_s=26562, version="4.0", fabric_state="completed"
    )
    return gpu_node(
        devices,
        links,
        infiniband(8),
        node=node_section(),
        settings={"NCCL_SOCKET_IFNAME": "=bond0"},
        switches=4,
        missing=(),
    )


def with_nvlsm(document):
    """HGX B200 and B300: the switches are reached over InfiniBand management; none is on the PCI
    bus, yet a fabric manager runs."""
    for one in document["sections"]["gpus"]["devices"]:
        one["bar1_total_mib"] = 262144.0 if one["model"] == "NVIDIA B200" else 524288.0
    manager = document["sections"]["fabric_manager"]
    manager.update(
        installed=True,
        version="580.178.04",
        package="nvidia-fabricmanager-580",
        running=True,
        started_s=24,
        enabled=True,
    )
    manager["probe"]["unread"] = [
        row for row in manager["probe"]["unread"] if row["field"] in ("last_error", "imex.version")
    ]
    kernel = document["sections"]["kernel"]
    kernel["modules"] += [
        {
            "name": "ib_umad",
            "version": "",
            "srcversion": None,
            "out_of_tree": False,
            "users": 4,
            "parameters": {},
        }
    ]
    document["sections"]["packages"]["installed"] += [
        package("nvidia-fabricmanager-580", "580.178.04-1", held=True),
        package("nvlsm", "2025.10.1-1"),
    ]
    document["sections"]["packages"]["holds"] += ["nvidia-fabricmanager-580"]
    return document


def b200_infiniband():
    devices = [
        gpu(index, "NVIDIA B200", "blackwell", "10.0", 183359.0, 5, 1000.0, dict(FABRIC))
        for index in range(8)
    ]
    links = interconnect_section(
        devices, 18, speed_mb_s=53125, version="5.0", fabric_state="completed"
    )
    return with_nvlsm(
        gpu_node(
            devices,
            links,
            infiniband(8),
            node=node_section(),
            settings={"NCCL_SOCKET_IFNAME": "=bond0"},
            missing=(),
        )
    )


def b300_infiniband():
    devices = [
        gpu(index, "NVIDIA B300 SXM6 AC", "blackwell", "10.3", 275040.0, 6, 1100.0, dict(FABRIC))
        for index in range(8)
    ]
    links = interconnect_section(
        devices, 18, speed_mb_s=53125, version="5.0", fabric_state="completed"
    )
    document = with_nvlsm(
        gpu_node(
            devices,
            links,
            infiniband(8, 800.0),
            node=node_section(),
            settings={"NCCL_SOCKET_IFNAME": "=bond0"},
            missing=(),
        )
    )
    document["sections"]["nccl"]["libraries"][0]["version"] = document["sections"]["torch"][
        "environments"
    ][0]["nccl"] = "2.31.2"  # 2.30.4 to 2.30.7 stall there
    return document


def arm_node():
    node = node_section(slurm=True)
    node.update(architecture="aarch64")
    node["cpu"].update(
        vendor="ARM",
        model="Neoverse-V2",
        sockets=2,
        logical_cpus=144,
        frequency={"driver": "cppc_cpufreq", "governors": ["performance"]},
    )
    node.update(clock_source="arch_sys_counter")
    node["dmi"].update(vendor="NVIDIA", product="GB200 NVL")
    return node


def gb200_nvl72():
    fabric = dict(FABRIC, clique=32766, cluster="4f1f6a5e-3c2b-4d3e-9c77-1d5e36a0c001")
    devices = [
        gpu(index, "NVIDIA GB200", "blackwell", "10.0", 189471.0, 5, 1200.0, dict(fabric))
        for index in range(4)
    ]
    for index, one in enumerate(devices):
        one.update(numa_node=index // 2, cpus="0-71" if index < 2 else "72-143")
        one["pcie"].update(width_now=1, width_max=1, generation_now=5, generation_max=5)
    links = interconnect_section(
        devices, 18, speed_mb_s=53125, version="5.0", fabric_state="completed"
    )
    document = gpu_node(
        devices,
        links,
        infiniband(4),
        node=arm_node(),
        settings={"NCCL_SOCKET_IFNAME": "=bond0"},
        missing=(),
    )
    document["sections"]["driver"]["parameters"]["GrdmaPciTopoCheckOverride"] = "1"
    channel = {
        "path": "/dev/nvidia-caps-imex-channels/channel0",
        "mode": "0666",
        "open_to_all": True,
    }
    manager = document["sections"]["fabric_manager"]
    manager["imex"] = {
        "installed": True,
        "version": "580.178.04",
        "running": True,
        "channels": [channel],
    }
    manager["probe"]["unread"] = [
        row for row in manager["probe"]["unread"] if row["field"] != "imex.version"
    ]
    return on_kernel(document, ARM_KERNEL)


def gh200():
    no_fabric = dict(FABRIC, state="not_supported", clique=None, cluster=None, health_mask=None)
    devices = [gpu(0, "NVIDIA GH200 480GB", "hopper", "9.0", 97871.0, 5, 900.0, no_fabric)]
    links = interconnect_section(devices, 0)
    missing = ("fabric.health_mask", "fabric.clique", "fabric.cluster")
    node = arm_node()
    node["numa_nodes"] = 1
    node["dmi"]["product"] = "GH200 P4352"
    document = gpu_node(
        devices,
        links,
        infiniband(1),
        node=node,
        settings={"NCCL_SOCKET_IFNAME": "=bond0", "NCCL_LL128_C2C": "0"},
        missing=missing,
    )
    return on_kernel(document, ARM_KERNEL)


def rtx_pro_6000(cpu="AuthenticAMD", count=4):
    model = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    devices = [gpu(index, model, "blackwell", "12.0", 97887.0, 5, 600.0) for index in range(count)]
    for one in devices:
        one["numa_node"] = 0
    network = network_section(
        [interface("eno1", "10.0.0.1/24", "bnxt_en", 25000, default=True)], ["eno1"]
    )
    document = gpu_node(
        devices,
        interconnect_section(devices, 0),
        network,
        node=node_section(cpu=cpu),
        settings={"NCCL_SOCKET_IFNAME": "=eno1"},
    )
    document["sections"]["kernel"]["modules"][1]["parameters"] = {"uvm_disable_hmm": "Y"}
    document["sections"]["kernel"]["cmdline"] = "ro quiet iommu=off"
    document["sections"]["interconnect"]["iommu"] = {
        "mode": "off",
        "groups": 0,
        "evidence": "no IOMMU groups",
    }
    return document


def efa_device(number):
    """As sysfs shows an EFA device: an unspecified link layer, and no lid."""
    port = {
        "port": 1, "state": "active", "physical_state": "linkup", "link_layer": "unknown",
        "rate_gbps": 100.0, "lid": 0, "counters": {},
        "gids": [{"index": 0, "gid": f"fe80:0000:0000:0000:00{number:02x}:00ff:fe00:0001",
        "type": "ib", "interface": None}],
    }  # fmt: skip
    return {
        "name": f"rdmap{number + 79}s0", "driver": "efa", "firmware": "0.0.0.0", "board": "",
        "pci_address": f"0000:{number + 79:02x}:00.0",
        "numa_node": number // 16, "ats_enabled": None, "ports": [port],
    }  # fmt: skip


def p5_efa():
    """p5.48xlarge: 8 H100, 32 EFA devices, a virtual machine that runs the fabric manager
    itself."""
    devices = [
        gpu(index, "NVIDIA H100 80GB HBM3", "hopper", "9.0", 81559.0, 5, 700.0, dict(FABRIC))
        for index in range(8)
    ]
    links = interconnect_section(
        devices, 18, speed_mb_s=26562, version="4.0", fabric_state="completed", vm=True
    )
    network = network_section(
        [interface("enp71s0", "10.0.0.1/24", "ena", None, default=True)],
        ["enp71s0"],
        [efa_device(number) for number in range(32)],
    )
    network.update(
        has_infiniband=False, peermem={"loaded": False, "module": None, "registered": None}
    )
    network["efa"] = {"installer": "1.49.0", "plugin": "1.21.1"}
    network["probe"]["unread"] = [
        {"field": "peermem.registered", "status": "absent", "reason": "the module is not loaded"}
    ]
    node = node_section(vm=True, cpu="AuthenticAMD")
    node["dmi"].update(vendor="Amazon EC2", product="p5.48xlarge")
    document = gpu_node(
        devices,
        links,
        network,
        node=node,
        settings={"NCCL_SOCKET_IFNAME": "=enp71s0"},
        switches=4,
        missing=(),
    )
    document["sections"]["nccl"]["net_plugins"] = [
        {
            "path": "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so",
            "name": "libnccl-net-ofi.so",
            "where": "host",
        }
    ]
    kernel = document["sections"]["kernel"]
    kernel["modules"] = [one for one in kernel["modules"] if one["name"] != "nvidia_peermem"]
    kernel["modules"].append(
        {
            "name": "efa",
            "version": "2.17.2g",
            "srcversion": None,
            "out_of_tree": True,
            "users": 0,
            "parameters": {},
        }
    )
    kernel["out_of_tree"] = ["efa", "nvidia", "nvidia_uvm"]
    return on_kernel(document, AWS_KERNEL)


def a3(product, nics):
    """Google's A3: 8 H100, GPU traffic over gVNICs by TCPX or TCPXO, whose plugin is one of
    NCCL's."""
    devices = [
        gpu(index, "NVIDIA H100 80GB HBM3", "hopper", "9.0", 81559.0, 5, 700.0, dict(FABRIC))
        for index in range(8)
    ]
    links = interconnect_section(
        devices, 18, speed_mb_s=26562, version="4.0", fabric_state="completed", vm=True
    )
    cards = [
        interface(f"eth{number}", f"10.{number}.0.2/32", "gve", None, default=number == 0)
        for number in range(nics + 1)
    ]
    for number, one in enumerate(cards):
        one.update(mtu=8244, pci_address=f"0000:{number + 6:02x}:00.0", numa_node=None)
    network = network_section(cards, [one["name"] for one in cards])
    node = node_section(vm=True)
    node["dmi"].update(vendor="Google", product=product)
    settings = {"NCCL_SOCKET_IFNAME": "=eth0"}
    document = gpu_node(
        devices, links, network, node=node, settings=settings, switches=4, missing=()
    )
    document["sections"]["nccl"]["net_plugins"] = [
        {
            "path": "/usr/local/nvidia/lib64/libnccl-net.so",
            "name": "libnccl-net.so",
            "where": "host",
        }
    ]
    return on_kernel(document, "6.8.0-1044-gcp")


def a3_high_tcpx():
    return a3("a3-highgpu-8g", 4)


def a3_mega_tcpxo():
    return a3("a3-megagpu-8g", 8)


PLATFORMS = {
    **HEALTHY, "h200_infiniband": h200_infiniband, "b200_infiniband": b200_infiniband,
    "b300_infiniband": b300_infiniband, "gb200_nvl72": gb200_nvl72,
    "gh200": gh200, "rtx_pro_6000": rtx_pro_6000, "p5_efa": p5_efa, "a3_high_tcpx": a3_high_tcpx,
    "a3_mega_tcpxo": a3_mega_tcpxo,
}  # fmt: skip
