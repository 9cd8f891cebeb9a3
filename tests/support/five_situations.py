"""A fleet of 27 nodes with everything that a report must show, the five situations included."""

from __future__ import annotations

from typing import Any

from fleets import A6000, RTX3090, document, finding, h200, node, sections

NVIDIA_FORUM = {
    "url": "https://github.com/NVIDIA/open-gpu-kernel-modules/issues",
    "says": "users report that peer-to-peer copies never complete",
}


def fleet() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(findings, node documents) of a fleet of 27 nodes with everything that a report must show."""
    nodes = [
        node(
            f"gpu{i:03d}",
            ["gpu", "production"],
            h200(
                active={5: 17} if i == 4 else None, ports_down={2} if i in (7, 8) else frozenset()
            ),
        )
        for i in range(1, 17)
    ]
    nodes[8] = node(
        "gpu009",
        ["gpu", "production"],
        None,
        "unreachable",
        "ssh: connect to host 10.4.0.9 port 22: No route to host",
    )
    nodes[11] = node("gpu012", ["gpu", "production"], None, "timeout", "no answer within 60 s")
    nodes += [
        node(
            f"dev{i:02d}",
            ["gpu", "development"],
            sections(
                RTX3090,
                4,
                "545.23.08",
                "5.15.0-105-generic",
                "2.18.5+cuda12.2",
                cut_off={(0, 1)} if i == 3 else frozenset(),
            ),
        )
        for i in range(1, 9)
    ]
    nodes += [
        node(
            f"ws{i}",
            ["gpu", "workstations"],
            sections(
                A6000,
                3,
                "535.154.05",
                "5.4.0-172-generic",
                "2.18.5+cuda12.2",
                nvlinks=4,
                remote="gpu",
                narrow={2: 8},
            ),
        )
        for i in range(1, 4)
    ]
    found = [*_of_drivers(), *_of_hardware(), *_of_settings(), *_not_known()]
    return document(found, {"ok": 25, "unreachable": 1, "timeout": 1}, passed=1922), nodes


def _of_drivers() -> list[dict[str, Any]]:
    made = [
        finding(
            "driver-545-23-08-p2p-deadlock",
            f"dev{i:02d}",
            "critical",
            "Driver 545.23.08 deadlocks NCCL peer-to-peer between GPUs",
            "a driver that is known good with several GPUs, such as 535.154.05",
            f"545.23.08 loaded on 4 × {RTX3090}",
            evidence=[
                {"path": "driver.loaded.version", "value": "545.23.08"},
                {"path": "gpus.count", "value": 4},
            ],
            remedy={
                "role": "gpu_driver",
                "policy": {"driver": {"version": "535.154.05", "held": True}},
            },
            situations=[2],
            confidence="reported",
            sources=[NVIDIA_FORUM],
            workaround={
                "what": "NCCL_P2P_DISABLE=1",
                "cost": (
                    "transfers go through host memory: much slower, and more memory on the"
                    " first GPU"
                ),
            },
        )
        for i in range(1, 9)
    ]
    return [
        *made,
        finding(
            "fleet-driver-development-like-production",
            None,
            "warning",
            "Development runs another driver than production",
            "the driver of production, 570.133.20",
            "545.23.08 in development",
            scope="fleet",
            hosts=[f"dev{i:02d}" for i in range(1, 9)],
            group="development",
            situations=[2],
            remedy={
                "person": (
                    "decide which driver both groups should have, and write it into the policy of"
                    " both"
                )
            },
            comparison={
                "majority": "570.133.20",
                "counts": [
                    {
                        "value": "570.133.20",
                        "count": 14,
                        "hosts": [f"gpu{i:03d}" for i in range(1, 17) if i not in (9, 12)],
                    },
                    {
                        "value": "545.23.08",
                        "count": 8,
                        "hosts": [f"dev{i:02d}" for i in range(1, 9)],
                    },
                ],
            },
        ),
    ]


def _of_hardware() -> list[dict[str, Any]]:
    look = {
        "person": (
            "reset the GPU with no job on it; if the link stays down, reseat or replace the board"
        )
    }
    made = [
        finding(
            "nvlink-inactive",
            "gpu004",
            "error",
            "An NVLink is down",
            "18 active NVLinks on every GPU",
            "GPU 5 (0000:6b:00.0) has 17 of 18 NVLinks active",
            situations=[3],
            remedy=look,
            where={
                "index": 5,
                "uuid": "GPU-00000005-0000-0000-0000-000000000000",
                "pci_address": "0000:6b:00.0",
            },
            evidence=[{"path": "interconnect.by_gpu[5].nvlinks_active", "value": 17}],
        )
    ]
    made += [
        finding(
            "rdma-port-down",
            host,
            "error",
            "An RDMA port is down",
            "every port active",
            "mlx5_2 port 1 is down",
            where={"name": "mlx5_2"},
            situations=[3],
            remedy={"person": "check cable and switch port"},
            evidence=[{"path": "network.rdma[2].ports[0].state", "value": "down"}],
        )
        for host in ("gpu007", "gpu008")
    ]
    made += [
        finding(
            "gpu-pcie-width",
            f"ws{i}",
            "warning",
            "A GPU has fewer PCIe lanes than it could have",
            "x16",
            "GPU 2 (0000:3b:00.0) runs x8 of x16",
            where={"index": 2},
            situations=[1],
            remedy={"person": "move the card to a full slot, or reseat it and its riser"},
            evidence=[{"path": "gpus.devices[2].pcie.width_now", "value": 8}],
        )
        for i in range(1, 4)
    ]
    made.append(
        finding(
            "p2p-pair-not-ok",
            "dev03",
            "error",
            "Two GPUs cannot reach each other's memory",
            "peer-to-peer reads between every pair of GPUs",
            "GPU 0 and GPU 1: chipset_not_supported",
            remedy={"person": "check ACS and IOMMU in the firmware's setup"},
            evidence=[{"path": "interconnect.pairs[0].read", "value": "chipset_not_supported"}],
            situations=[2],
        )
    )
    made += [
        finding(
            "node-unreachable",
            "gpu009",
            "error",
            "A node did not answer",
            "an answer over ssh",
            "ssh: connect to host 10.4.0.9 port 22: No route to host",
            remedy={"person": "check power, network and ssh, then audit it again"},
        ),
        finding(
            "node-timeout",
            "gpu012",
            "error",
            "A node did not finish in time",
            "an answer within 60 s",
            "no answer within 60 s",
            remedy={"person": "look at the node's console for hung tasks"},
        ),
    ]
    return made


def _of_settings() -> list[dict[str, Any]]:
    made = [
        finding(
            "kernel-below-5-5",
            f"ws{i}",
            "info",
            "The kernel is older than accelerate recommends",
            "5.5.0 or newer",
            "5.4.0-172-generic",
            confidence="inferred",
            situations=[1],
            remedy={"role": "kernel", "policy": {"kernel": {"min": "5.5.0"}}},
            evidence=[{"path": "kernel.release", "value": "5.4.0-172-generic"}],
        )
        for i in range(1, 4)
    ]
    made += [
        finding(
            "nccl-timeout-does-nothing",
            f"gpu{i:03d}",
            "warning",
            "NCCL_TIMEOUT is set, and nothing reads it",
            "no such variable; a timeout belongs to init_process_group or the launcher",
            "NCCL_TIMEOUT=1200000 in /etc/environment:7",
            situations=[3],
            evidence=[
                {
                    "path": "nccl.settings[4]",
                    "value": {
                        "name": "NCCL_TIMEOUT",
                        "value": "1200000",
                        "file": "/etc/environment",
                        "line": 7,
                    },
                }
            ],
            remedy={
                "role": "nccl_profile",
                "policy": {"nccl": {"settings": {"NCCL_TIMEOUT": None}}},
            },
        )
        for i in (1, 5, 6, 10, 13, 14)
    ]
    made.append(
        finding(
            "every-rank-on-gpu-0",
            "gpu002",
            "critical",
            "CUDA_VISIBLE_DEVICES pins every process to GPU 0",
            "no pin for all users",
            "CUDA_VISIBLE_DEVICES=0 in /etc/profile.d/cuda.sh:3",
            situations=[5],
            evidence=[
                {
                    "path": "nccl.settings[1]",
                    "value": {"name": "CUDA_VISIBLE_DEVICES", "value": "0"},
                }
            ],
            remedy={"role": "gpu_binding"},
        )
    )
    made.append(
        finding(
            "nvcc-not-torch-cuda",
            "gpu016",
            "error",
            "nvcc's CUDA is not the one that torch was built with",
            "CUDA 12.8 as torch has it",
            "nvcc 11.8 in /usr/local/cuda-11.8",
            situations=[4],
            evidence=[
                {"path": "cuda.default.version", "value": "11.8"},
                {"path": "torch.environments[0].cuda", "value": "12.8"},
            ],
            remedy={"role": "build_toolchain", "policy": {"cuda": {"version": "12.8"}}},
        )
    )
    made.append(
        finding(
            "memlock-low",
            "gpu003",
            "error",
            "Locked memory is limited",
            "unlimited",
            "65536 bytes for sshd",
            verdict="waived",
            waiver={"reason": "image is rebuilt on Monday", "by": "ops", "until": "2026-03-09"},
        )
    )
    return made


def _not_known() -> list[dict[str, Any]]:
    gap = [
        {
            "path": "interconnect.acs",
            "status": "denied",
            "reason": "needs root to read PCI configuration space",
        }
    ]
    return [
        finding(
            "acs-breaks-p2p",
            f"dev{i:02d}",
            "warning",
            "PCI bridges send peer traffic through the root",
            "ACS off",
            "",
            verdict="unknown",
            missing=gap,
        )
        for i in range(1, 9)
    ]
