"""Nodes for the tests of driver plans: small pieces of facts, offers and users, selected by
name."""

from __future__ import annotations

import copy

from unhang.act.role_changes.driver_inputs import DriverInputs, Options
from unhang.act.role_changes.driver_sets import read_tables

KERNEL = "6.12.57+deb13-amd64"
TRIXIE_550 = {
    "nvidia-driver": "550.163.01-2",
    "nvidia-kernel-dkms": "550.163.01-2",
    "nvidia-alternative": "550.163.01-2",
    "libnvidia-ml1": "550.163.01-2",
    "libcuda1": "550.163.01-2",
    "libnvidia-eglcore": "550.163.01-2",
    "nvidia-settings": "550.163.01-1",
    "nvidia-persistenced": "550.163.01-1",
    "glx-alternative-nvidia": "1.2.2",
}
OFFERS = {
    "nvidia-driver": [{"version": "550.163.01-2", "origin": "Debian"}],
    "nvidia-kernel-dkms": [{"version": "550.163.01-2", "origin": "Debian"}],
    "nvidia-open-kernel-dkms": [{"version": "550.163.01-2", "origin": "Debian"}],
    "libnvidia-ml1": [{"version": "550.163.01-2", "origin": "Debian"}],
    "nvidia-tesla-535-driver": [
        {"version": "535.274.02-1~deb13u1", "origin": "Debian"},
        {"version": "535.261.03-1", "origin": "Debian"},
    ],
    "nvidia-tesla-535-kernel-dkms": [
        {"version": "535.274.02-1~deb13u1", "origin": "Debian"},
        {"version": "535.261.03-1", "origin": "Debian"},
    ],
    "libnvidia-tesla-535-ml1": [
        {"version": "535.274.02-1~deb13u1", "origin": "Debian"},
        {"version": "535.261.03-1", "origin": "Debian"},
    ],
}
GPU = {
    "index": 0,
    "minor": 0,
    "uuid": "GPU-0a1b",
    "model": "NVIDIA A100-SXM4-80GB",
    "architecture": "ampere",
}
SERVICES = [
    {"unit": unit, "active": True, "enabled": True}
    for unit in (
        "nvidia-dcgm.service",
        "nvidia-persistenced.service",
        "nvidia-fabricmanager.service",
    )
]
UNLOAD = ["nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia"]
NOBODY = {
    "processes": [],
    "services": [],
    "modules_held": [],
    "foreign_modules": [],
    "unload": UNLOAD,
}
PERSISTENCED = {
    "pid": 411,
    "user": "root",
    "command": "nvidia-persiste",
    "devices": ["/dev/nvidia0"],
    "service": "nvidia-persistenced.service",
}
JOB = {
    "pid": 4711,
    "user": "alice",
    "command": "python3",
    "devices": ["/dev/nvidia0"],
    "service": None,
}


def rows(packages):
    """Package rows in the form of the facts."""
    return [
        {
            "name": name,
            "version": version,
            "architecture": "amd64",
            "held": False,
            "state": "installed",
        }
        for name, version in packages.items()
    ]


def node(packages=TRIXIE_550, loaded="550.163.01"):
    """Sections of a trixie node with headers for its only kernel."""
    return {
        "node": {
            "os": {
                "id": "debian",
                "version_id": "13",
                "family": "debian",
                "pretty_name": "Debian GNU/Linux 13",
            },
            "secure_boot": False,
            "image": {"kind": "installed", "evidence": "/ is ext4"},
            "kubernetes": {"kubelet": False, "gpu_operator": False},
        },
        "kernel": {
            "release": KERNEL,
            "boot": {"default_release": KERNEL},
            "installed": [
                {
                    "release": KERNEL,
                    "image": f"/boot/vmlinuz-{KERNEL}",
                    "headers": True,
                    "nvidia_module": loaded,
                }
            ],
            "dkms": [
                {
                    "module": "nvidia-current",
                    "version": "550.163.01",
                    "kernel": KERNEL,
                    "state": "installed",
                }
            ],
        },
        "driver": {
            "loaded": {"is_loaded": True, "version": loaded, "flavour": "proprietary"},
            "packages": rows(packages),
            "install_method": "packages",
        },
        "fabric_manager": {"nvswitch_present": False},
        "gpus": {"devices": [dict(GPU)]},
        "torch": {"environments": []},
        "cuda": {"default": None, "forward_compat": None},
    }


def case(policy=None, changes=None, offers=None, users=None, **options):
    """A DriverInputs. changes: {dotted path: value}, applied to the node's sections."""
    sections = copy.deepcopy(node())
    for path, value in (changes or {}).items():
        place = sections
        *folders, last = path.split(".")
        for name in folders:
            place = place.setdefault(name, {})
        place[last] = value
    installed = {row["name"]: row for row in sections["driver"].get("packages") or ()}
    wish = {"driver": {"version": "535.274.02"}} if policy is None else policy
    return DriverInputs(
        "gpu001",
        sections,
        wish,
        read_tables(),
        OFFERS if offers is None else offers,
        installed,
        {**NOBODY, **(users or {})},
        Options(**options),
    )
