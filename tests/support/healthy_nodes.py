"""Complete facts of healthy nodes of six kinds: the answer of the collector with root."""

from __future__ import annotations

import copy

from healthy_sections import (
    absent,
    cuda_section,
    driver_packages,
    driver_section,
    fabric_section,
    faults_section,
    gpu,
    gpus_section,
    interconnect_section,
    interface,
    kernel_section,
    limits_section,
    nccl_section,
    network_section,
    node_section,
    nothing_there,
    packages_section,
    probe,
    rdma_device,
    torch_section,
)

from unhang_node.base.version import VERSION


def document(sections):
    return {
        "schema": "unhang/node-facts/1",
        "collector": {"version": VERSION, "collected_via": "ansible", "as_root": True},
        "sections": sections,
    }


def gpu_node(
    devices,
    interconnect,
    network,
    *,
    node,
    settings,
    flavour="open",
    switches=0,
    missing=("fabric",),
):
    packages = driver_packages(switches > 0)
    if node["slurm"]["config"]:
        node["slurm"]["config"]["gpus"] = len(devices)
    return document(
        {
            "node": node, "kernel": kernel_section(),
            "driver": driver_section(flavour, fabric=switches > 0),
            "fabric_manager": fabric_section(switches),
            "cuda": cuda_section(), "nccl": nccl_section(settings), "torch": torch_section(),
            "gpus": gpus_section(devices, *missing),
            "interconnect": interconnect,
            "network": network, "limits": limits_section(), "packages": packages_section(packages),
            "faults": faults_section(),
        }
    )  # fmt: skip


def a100_roce():
    fabric = {
        "state": "not_supported",
        "status": "success",
        "clique": None,
        "cluster": None,
        "health_mask": None,
    }
    devices = [
        gpu(index, "NVIDIA A100-SXM4-80GB", "ampere", "8.0", 81920.0, 4, 400.0, dict(fabric))
        for index in range(8)
    ]
    network = network_section(
        [interface("bond0", "10.0.0.1/24", default=True)],
        ["bond0"],
        [rdma_device(number, "ethernet", 200.0) for number in range(8)],
    )
    links = interconnect_section(devices, 12)
    node = node_section(cpu="AuthenticAMD")
    settings = {
        "NCCL_SOCKET_IFNAME": "=bond0",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7",
    }
    return gpu_node(
        devices,
        links,
        network,
        node=node,
        settings=settings,
        switches=6,
        missing=("fabric.health_mask", "fabric.clique", "fabric.cluster"),
    )


def h100_infiniband():
    fabric = {
        "state": "completed",
        "status": "success",
        "clique": 0,
        "cluster": "00000000-0000-0000-0000-000000000000",
        "health_mask": 0,
    }
    devices = [
        gpu(index, "NVIDIA H100 80GB HBM3", "hopper", "9.0", 81559.0, 5, 700.0, dict(fabric))
        for index in range(8)
    ]
    network = network_section(
        [interface("bond0", "10.0.0.1/24", default=True)],
        ["bond0"],
        [rdma_device(number, "infiniband", 400.0) for number in range(8)],
    )
    links = interconnect_section(
        devices, 18, speed_mb_s=26562, version="4.0", fabric_state="completed"
    )
    return gpu_node(
        devices,
        links,
        network,
        node=node_section(),
        settings={"NCCL_SOCKET_IFNAME": "=bond0"},
        switches=4,
        missing=(),
    )


def l40s_ethernet():
    devices = [gpu(index, "NVIDIA L40S", "ada", "8.9", 46068.0, 4, 350.0) for index in range(4)]
    network = network_section(
        [interface("eno1", "10.0.0.1/24", "bnxt_en", 25000, default=True)], ["eno1"]
    )
    return gpu_node(
        devices,
        interconnect_section(devices, 0),
        network,
        node=node_section(),
        settings={"NCCL_SOCKET_IFNAME": "=eno1", "NCCL_NET": "Socket"},
    )


def rtx_4090_workstation(count=2):
    devices = [
        gpu(index, "NVIDIA GeForce RTX 4090", "ada", "8.9", 24564.0, 4, 450.0)
        for index in range(count)
    ]
    for one in devices:
        one["ecc"] = dict.fromkeys(one["ecc"])
        one["row_remap"] = None
    network = network_section(
        [interface("enp5s0", "192.168.1.20/24", "igc", 2500, default=True)], ["enp5s0"]
    )
    links = interconnect_section(devices, 0, read="chipset_not_supported", topology="hostbridge")
    node = node_section(cpu="AuthenticAMD", numa=1, slurm=False)
    return gpu_node(
        devices, links, network, node=node, settings={}, missing=("fabric", "row_remap", "ecc")
    )


def t4_cloud_vm():
    devices = [gpu(index, "Tesla T4", "turing", "7.5", 15360.0, 3, 70.0) for index in range(2)]
    for one in devices:
        one["row_remap"] = None
        one["retired_pages"] = {"single_bit": 0, "double_bit": 0, "pending": False}
    network = network_section(
        [interface("ens4", "10.128.0.2/32", "gvnic", None, default=True)], ["ens4"]
    )
    links = interconnect_section(
        devices, 0, read="chipset_not_supported", topology="hostbridge", vm=True
    )
    return gpu_node(
        devices,
        links,
        network,
        node=node_section(vm=True, numa=1, slurm=False),
        settings={},
        missing=("fabric", "row_remap"),
    )


def cpu_only():
    none = nothing_there("no NVIDIA driver")
    driver = dict(
        driver_section(),
        probe=probe(),
        install_method="none",
        packages=[],
        loaded={"is_loaded": False, "version": None, "flavour": None, "line": None},
    )
    driver.update(
        branch=None,
        cuda_version=None,
        nvml_version=None,
        userspace=None,
        on_disk=None,
        gsp_firmware=None,
        persistence_daemon=False,
        parameters=None,
        device_nodes=None,
    )
    driver["probe"] = probe(
        *absent(
            "loaded",
            "branch",
            "cuda_version",
            "nvml_version",
            "userspace",
            "on_disk",
            "gsp_firmware",
            "device_nodes",
            "parameters",
            "mismatch_text",
        )
    )
    network = network_section(
        [interface("eno1", "10.0.0.9/24", "bnxt_en", 25000, default=True)], ["eno1"]
    )
    torch = {"probe": probe(), "environments": [], "extension_caches": []}
    nccl = {
        "probe": probe(),
        "libraries": [],
        "net_plugins": [],
        "settings": [],
        "effective": {"ssh": {}},
    }
    cuda = copy.deepcopy(cuda_section())
    return document(
        {
            "node": node_section(slurm=False), "kernel": kernel_section(driver=False),
            "driver": driver, "fabric_manager": fabric_section(), "cuda": cuda,
            "nccl": nccl, "torch": torch, "gpus": none,
            "interconnect": nothing_there("no NVIDIA driver"), "network": network,
            "limits": limits_section(),
            "packages": packages_section([]), "faults": faults_section(),
        }
    )  # fmt: skip


HEALTHY = {
    "a100_roce": a100_roce, "h100_infiniband": h100_infiniband, "l40s_ethernet": l40s_ethernet,
    "rtx_4090_workstation": rtx_4090_workstation,
    "t4_cloud_vm": t4_cloud_vm, "cpu_only": cpu_only,
}  # fmt: skip
