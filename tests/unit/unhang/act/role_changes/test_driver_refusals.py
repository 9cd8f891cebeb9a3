"""When the role gpu_driver does not touch a node: a table of nodes, with the text of each
refusal."""

from __future__ import annotations

import pytest
from driver_cases import GPU, JOB, KERNEL, NOBODY, PERSISTENCED, SERVICES, case

from unhang.act.role_changes.driver_plan import plan_driver

OPEN_550 = {"driver": {"version": "550.163.01", "flavour": "open"}}
UBUNTU = {
    "node.os": {"id": "ubuntu", "version_id": "24.04", "family": "debian"},
    "driver.packages": [],
    "driver.install_method": "none",
    "kernel.boot.default_release": "6.8.0-85-generic",
    "kernel.installed": [],
}
UBUNTU_580 = {
    name: [{"version": "580.95.05-0ubuntu0.24.04.2", "origin": "Ubuntu"}]
    for name in ("nvidia-driver-580-server-open", "libnvidia-compute-580-server")
}
UBUNTU_580["linux-modules-nvidia-580-server-open-generic"] = [
    {"version": "6.8.0-85.85+1", "origin": "Ubuntu"}
]
WANTS_580 = {"driver": {"version": "580.95.05", "flavour": "open"}}
TORCH_13 = [{"path": "/opt/train", "cuda": "13.0", "has_cuda": True}]
SIGNED = {"kernel.dkms": [], "node.secure_boot": True}
OTHERS = [dict(JOB, pid=5000 + number) for number in range(11)]

REFUSED = [
    # id, what the line says, what differs from a node that is changed
    (
        "not-offered",
        (
            "the check found: nvidia-tesla-535-driver, nvidia-tesla-535-kernel-dkms not offered at 535.99.99"
        ),
        {"policy": {"driver": {"version": "535.99.99"}}},
    ),
    (
        "not-offered",
        "nvidia-tesla-535-driver 535.274.02-1~deb13u1, 535.261.03-1",
        {"policy": {"driver": {"version": "535.99.99"}}},
    ),
    ("not-offered", "On offer: no driver package at all", {"offers": {}}),
    ("not-offered", "needs driver min 600.10.01", {"policy": {"driver": {"min": "600.10.01"}}}),
    (
        "not-offered",
        "it offers 535 proprietary, 550 open, 550 proprietary",
        {"policy": {"driver": {"version": "535.274.02", "flavour": "open"}}},
    ),
    (
        "not-offered",
        "Alpine Linux is no system whose driver packages are known",
        {"changes": {"node.os": {"id": "alpine", "pretty_name": "Alpine Linux"}}},
    ),
    (
        "not-offered",
        (
            "nvidia-driver-535-server 535.309.01-0ubuntu0.24.04.2 of Ubuntu 24.04 is empty and"
            " installs nvidia-driver-580-server"
        ),
        {
            "policy": {"driver": {"version": "535.309.01", "flavour": "proprietary"}},
            "changes": UBUNTU,
            "offers": UBUNTU_580,
        },
    ),
    (
        "not-offered",
        "nvidia-tesla-driver 525.147.05-15~deb12u1 of Debian 12 installs 535",
        {
            "policy": {"driver": {"version": "525.147.05"}},
            "changes": {"node.os": {"id": "debian", "version_id": "12"}},
        },
    ),
    (
        "driver-owner",
        "NVIDIA's .run installer; run nvidia-uninstall",
        {"changes": {"driver.install_method": "runfile"}},
    ),
    ("driver-owner", "a container runtime", {"changes": {"driver.install_method": "container"}}),
    ("driver-owner", "ClusterPolicy", {"changes": {"driver.install_method": "gpu_operator"}}),
    (
        "driver-owner",
        "ClusterPolicy",
        {"changes": {"driver.install_method": "none", "node.kubernetes.gpu_operator": True}},
    ),
    (
        "driver-owner",
        "something that no package owns",
        {"changes": {"driver.install_method": "unknown"}},
    ),
    (
        "stateless-image",
        "a stateless image (/ is an overlay of a squashfs)",
        {
            "changes": {
                "node.image": {"kind": "stateless", "evidence": "/ is an overlay of a squashfs"}
            }
        },
    ),
    (
        "gpu-not-served",
        "blackwell: needs driver 570.26 or newer",
        {"changes": {"gpus.devices": [{"index": 0, "architecture": "blackwell"}]}},
    ),
    (
        "gpu-not-served",
        "volta: takes proprietary modules alone",
        {"policy": OPEN_550, "changes": {"gpus.devices": [{"index": 0, "architecture": "volta"}]}},
    ),
    (
        "gpu-not-served",
        "needs driver 570.133.20 or newer for NVIDIA B200",
        {"changes": {"gpus.devices": [{"index": 0, "model": "NVIDIA B200"}]}},
    ),
    (
        "gpu-not-served",
        "needs open modules for NVIDIA GH200 480GB",
        {"changes": {"gpus.devices": [{"index": 0, "model": "NVIDIA GH200 480GB"}]}},
    ),
    (
        "cuda-not-served",
        "CUDA 13.0 in use by torch in /opt/train",
        {"changes": {"torch.environments": TORCH_13}},
    ),
    (
        "cuda-not-served",
        "CUDA 13.1 in use by the toolkit in /usr/local/cuda-13.1",
        {"changes": {"cuda.default": {"path": "/usr/local/cuda-13.1", "version": "13.1"}}},
    ),
    (
        "cuda-not-served",
        "needs driver 580.65.06 or newer",
        {"policy": {"driver": {"version": "535.274.02"}, "cuda": {"min": "13.0"}}},
    ),
    (
        "kernels-not-read",
        "the installed kernels were not read; look why",
        {"changes": {"kernel.installed": None}},
    ),
    (
        "no-headers",
        f"install linux-headers-{KERNEL}",
        {"changes": {"kernel.installed": [{"release": KERNEL, "headers": False}]}},
    ),
    (
        "no-headers",
        "headers of 6.12.99-amd64, the kernel that boots next",
        {"changes": {"kernel.boot.default_release": "6.12.99-amd64"}},
    ),
    (
        "secure-boot",
        "found: Secure Boot on, and no key of DKMS not enrolled; enrol it (mokutil",
        {"changes": SIGNED},
    ),
    (
        "secure-boot",
        "/var/lib/dkms/mok.pub not enrolled",
        {
            "changes": {
                **SIGNED,
                "node.module_key": {"path": "/var/lib/dkms/mok.pub", "enrolled": False},
            }
        },
    ),
    (
        "gpus-in-use",
        "found: process 4711 (python3) of alice on GPU 0 (GPU-0a1b); let it end",
        {"users": {"processes": [JOB, PERSISTENCED]}},
    ),
    (
        "gpus-in-use",
        "on /dev/nvidia-uvm",
        {"users": {"processes": [dict(JOB, devices=["/dev/nvidia-uvm"])]}},
    ),
    ("gpus-in-use", "found: 3 users more", {"users": {"processes": OTHERS}}),
    (
        "gpus-in-use",
        "the kernel module weka_gpu, which needs the driver",
        {"users": {"foreign_modules": ["weka_gpu"]}},
    ),
    (
        "gpus-in-use",
        "the kernel module nvidia_drm, held 2 times by no process",
        {"users": {"modules_held": [{"name": "nvidia_drm", "holds": 2}]}},
    ),
    (
        "unproved",
        (
            "nvidia-driver-580-server-open, linux-modules-nvidia-580-server-open-generic, which is"
            " only written down"
        ),
        {"policy": WANTS_580, "changes": UBUNTU, "offers": UBUNTU_580},
    ),
    (
        "no-fabric-manager",
        "a fabric manager 535.274.02 on offer beside the driver",
        {"changes": {"fabric_manager.nvswitch_present": True}},
    ),
    (
        "no-fabric-manager",
        (
            "found: libnvidia-nscq-580 not offered; nvidia-fabricmanager-580 580.82.07-1; add"
            " NVIDIA's repository"
        ),
        {
            "policy": WANTS_580,
            "changes": {**UBUNTU, "fabric_manager.nvswitch_present": True},
            "offers": {
                **UBUNTU_580,
                "nvidia-fabricmanager-580": [{"version": "580.82.07-1", "origin": "Ubuntu"}],
            },
            "accept_unproved": True,
        },
    ),
]
ALLOWED = [
    {"users": {"processes": [JOB]}, "allow_in_use": True},
    {
        "users": {
            "services": SERVICES,
            "processes": [PERSISTENCED],
            "modules_held": [{"name": "nvidia", "holds": 3}],
        }
    },
    {"changes": SIGNED, "module_key_enrolled": True},
    {"changes": {**SIGNED, "node.module_key": {"path": "/var/lib/dkms/mok.pub", "enrolled": True}}},
    {"changes": {"node.secure_boot": True}},
    {"changes": {"node.secure_boot": None}},
    {
        "policy": WANTS_580,
        "changes": {**UBUNTU, "node.secure_boot": True},
        "offers": UBUNTU_580,
        "accept_unproved": True,
    },
    {
        "changes": {
            "torch.environments": TORCH_13,
            "cuda.forward_compat": {"path": "/usr/local/cuda/compat/libcuda.so.1"},
        }
    },
    {
        "changes": {
            "torch.environments": [
                {"path": "/opt/train", "cuda": "12.8"},
                {"path": "/opt/cpu", "cuda": None},
            ]
        }
    },
    {"changes": {"kernel.installed": []}},
    {"changes": {"gpus.devices": [dict(GPU, architecture="unknown")]}},
    {"changes": {"node.kubernetes.gpu_operator": True}},
]


@pytest.mark.parametrize(
    ("kind", "says", "node"),
    REFUSED,
    ids=lambda value: value if isinstance(value, str) and len(value) < 20 else "",
)
def test_a_node_that_must_not_be_touched_says_why(kind, says, node):
    plan = plan_driver(case(**node))
    assert kind in {row["id"] for row in plan["refusals"]}
    assert says in " ".join(row["text"] for row in plan["refusals"] if row["id"] == kind)
    for row in plan["refusals"]:
        assert row["text"].startswith("gpu001: the role needs ")
        assert all(row[part] for part in ("expected", "found", "where", "next"))
        assert "\n" not in row["text"]


@pytest.mark.parametrize("node", ALLOWED)
def test_its_neighbour_is_changed(node):
    assert plan_driver(case(**node))["refusals"] == []


@pytest.mark.parametrize(
    "node",
    [
        row[2]
        for row in REFUSED
        if row[0] in ("driver-owner", "stateless-image", "no-headers", "secure-boot", "gpus-in-use")
    ],
)
def test_what_forbids_a_change_does_not_forbid_to_leave_things_as_they_are(node):
    finished = {"driver": {"version": "550.163.01"}}
    assert plan_driver(case(**{**node, "policy": finished}))["action"] == "none"
    assert plan_driver(case(**{**node, "policy": finished}))["refusals"] == []


def test_nobody_is_nobody():
    assert NOBODY["processes"] == []
