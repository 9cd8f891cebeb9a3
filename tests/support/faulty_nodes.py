"""Six booted nodes that have the audit's five situations, each as a real state of a node; and what
the change of a driver needs."""

from __future__ import annotations

import driver_node
import hardware
from toolchain_packages import offer_toolchain

NAMES = tuple(f"gpu{number:03d}" for number in range(1, 7))
OLD_KERNEL, BAD_DRIVER, TIMEOUTS, FUSED_KERNELS, ONE_GPU, ONE_GPU_TOO = (
    "gpu005",
    "gpu004",
    "gpu001",
    "gpu002",
    "gpu003",
    "gpu006",
)
DRIVERS = ("545.23.08", driver_node.NEW)  # down to the branch that Debian 12 has
POLICIES = {
    BAD_DRIVER: {"driver": {"version": DRIVERS[1], "flavour": "proprietary", "held": True}},
    FUSED_KERNELS: {"build": {"extensions": True}, "torch": {"cuda": "12.8"}},
}
LOCK = "/root/.cache/torch_extensions/py311_cu128/fused_kernels/lock"
PINNED = "SITE=1\nCUDA_VISIBLE_DEVICES=0\n"
# Findings that a role repairs, and findings that a person must handle, on each node.
REPAIRED = {
    OLD_KERNEL: {"torch-setting-renamed"},
    BAD_DRIVER: {"policy-driver-version", "packages-driver-not-held"},
    TIMEOUTS: {"nccl-setting-not-real", "torch-setting-renamed"},
    FUSED_KERNELS: {"extension-lock-stale", "build-ninja-missing", "build-compiler-missing"},
    ONE_GPU: {"cuda-visible-devices-pinned"},
    ONE_GPU_TOO: {"cuda-visible-devices-pinned"},
}
FOR_A_PERSON = {
    OLD_KERNEL: {"kernel-below-5-5", "pcie-width-below-max"},
    TIMEOUTS: {"nvlink-some-inactive"},
    BAD_DRIVER: {"nccl-p2p-disabled"},
}


def make_sick(fleet, folder):
    """The five situations, until the fleet's undo. folder: for packages."""
    _old_kernel(fleet)
    _bad_driver(fleet, folder)
    fleet.plant(TIMEOUTS, "/etc/nccl.conf", "# from a forum\nNCCL_TIMEOUT=1200000\n")
    fleet.plant(TIMEOUTS, "/etc/environment", "SITE=1\nNCCL_ASYNC_ERROR_HANDLING=1\n")
    fleet.answer(TIMEOUTS, devices={"2": {"nvlink": {"all": {"state": 1}, "3": {"state": 0}}}})
    offer_toolchain(fleet, FUSED_KERNELS, folder)
    fleet.plant(FUSED_KERNELS, LOCK, "")
    fleet.shell(FUSED_KERNELS, f"touch -d '3 hours ago' {LOCK}")
    for name in (ONE_GPU, ONE_GPU_TOO):
        fleet.plant(name, "/etc/environment", PINNED)


def _old_kernel(fleet):
    machine = hardware.consumer_gpus(
        "NVIDIA RTX A6000", 3, "535.154.05", kernel="5.4.0-150-generic"
    )
    machine.answers["devices"] = {"1": {"nvmlDeviceGetCurrPcieLinkWidth": 8}}
    fleet.equip(OLD_KERNEL, machine)
    fleet.plant(OLD_KERNEL, "/etc/environment", "SITE=1\nNCCL_BLOCKING_WAIT=1\n")


def _bad_driver(fleet, folder):
    """A driver from packages, whose repository also has a good one; a boot loads the version that
    dpkg has installed."""
    gpus = hardware.consumer_gpus(
        "NVIDIA GeForce RTX 3090", 4, DRIVERS[0], kernel=driver_node.KERNEL
    )
    driver_node.prepare(fleet, BAD_DRIVER, folder, versions=DRIVERS, gpus=gpus)
    either = "(" + "|".join(version.replace(".", r"\.") for version in DRIVERS) + ")"
    fleet.plant(
        BAD_DRIVER,
        "/usr/local/sbin/testbed-driver",
        driver_node.LOAD.replace(r"535\.[0-9]+\.[0-9]+", either),
        0o755,
    )
    fleet.plant(BAD_DRIVER, "/etc/nccl.conf", "NCCL_P2P_DISABLE=1\n")
