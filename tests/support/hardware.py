"""Puts recorded hardware into a test node: the fake driver library, its profile, and the files of
/proc and /sys for GPUs and modules.

Everything comes from the capture of a real 8×H200 node (tests/fixtures/h200x8) and small
differences from it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re

from fakes.nvml import write_profile

CAPTURE = pathlib.Path(__file__).parents[1] / "fixtures" / "h200x8"
CAPTURED_DRIVER = "580.159.04"
CAPTURED_GPUS = 8
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
HARDWARE = "/srv/hardware"
MODULES = (
    "nvidia_uvm 3883008 0 - Live 0x0",
    "nvidia_modeset 1736704 0 - Live 0x0",
    "nvidia 14381056 2 nvidia_uvm,nvidia_modeset, Live 0x0",
)


@dataclasses.dataclass(frozen=True)
class Machine:
    """The hardware of a node. answers: a derived recording (see unhang_node/base/nvml/recording.py)
    without its base."""

    driver: str = CAPTURED_DRIVER
    model: str = "NVIDIA H200"
    gpus: int = CAPTURED_GPUS
    flavour_line: str = "Open Kernel Module for x86_64"
    pcie_width: int = 16
    kernel: str | None = None
    answers: dict = dataclasses.field(default_factory=dict)


H200X8 = Machine()


def consumer_gpus(model, gpus, driver, **changes):
    """A machine with GPUs without NVLink and without ECC, like a workstation."""
    unsupported = {"v": {"nvml_error": 3, "text": "Not Supported"}}
    answers = {
        "device_count": gpus,
        "all_devices": {
            "nvmlDeviceGetName": model,
            "nvmlDeviceGetArchitecture": 7,
            "nvlink_count": 0,
            "nvmlDeviceGetGpuFabricInfoV:v2": unsupported,
        },
        "pairs": {"all": {f"p2p:{kind}": 0 for kind in range(4)}},
    }
    return Machine(
        driver=driver,
        model=model,
        gpus=gpus,
        flavour_line="x86_64 Kernel Module",
        answers=answers,
        **changes,
    )


def install(node, machine, library, work):
    """Write the machine into the node's files. library: the built fake; work: a folder of this
    machine for the profile. Takes effect at the next boot, or after `systemctl restart
    testbed-hardware`."""
    install_library(node, machine.driver, library)
    install_profile(node, machine, work)
    install_files(node, hardware_files(machine))


def install_library(node, driver, library):
    """libnvidia-ml.so.1 and libcuda.so.1 where a driver package puts them; those of another version
    are removed."""
    folder = node.root / LIBRARIES.lstrip("/")
    for old in [*folder.glob("libnvidia-ml.so.*"), *folder.glob("libcuda.so.*")]:
        old.unlink()
    content = pathlib.Path(library).read_bytes()
    for name in ("libnvidia-ml.so", "libcuda.so"):
        node.write(f"{LIBRARIES}/{name}.{driver}", content)
        (folder / f"{name}.1").symlink_to(f"{name}.{driver}")


def install_profile(node, machine, work):
    """/etc/unhang-fake-nvml.profile, replaced as a whole; modes that were set are lost, as after a
    reload of the driver."""
    (node.root / "etc/unhang-fake-nvml.profile.set").unlink(missing_ok=True)
    recording = pathlib.Path(work) / f"{node.name}.nvml.json"
    system = {
        "nvmlSystemGetDriverVersion": machine.driver,
        "nvmlSystemGetNVMLVersion": f"12.{machine.driver}",
        **machine.answers.get("system", {}),
    }
    base = os.path.relpath(CAPTURE / "nvml.json", recording.parent)
    recording.write_text(json.dumps({**machine.answers, "base": base, "system": system}))
    profile = recording.with_suffix(".profile")
    write_profile(str(recording), str(profile))
    node.write("/etc/unhang-fake-nvml.profile.new", profile.read_bytes())
    os.replace(
        node.root / "etc/unhang-fake-nvml.profile.new", node.root / "etc/unhang-fake-nvml.profile"
    )


def install_files(node, files):
    """Writes exactly these files below /srv/hardware; a value that starts with "-> " is a symbolic
    link."""
    top = node.root / HARDWARE.lstrip("/")
    for old in sorted(top.rglob("*"), reverse=True):
        old.rmdir() if old.is_dir() and not old.is_symlink() else old.unlink()
    for path, content in files.items():
        if content.startswith("-> "):
            place = top / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(content[3:])
        else:
            node.write(f"{HARDWARE}/{path}", content)


def hardware_files(machine):
    """{path below /srv/hardware: content} of a machine."""
    modules = {
        "proc/modules": "".join(line + " (POE)\n" for line in MODULES),
        "sys/module/nvidia/version": machine.driver + "\n",
    }
    return {**modules, **driver_files(machine), **pci_files(machine), **kernel_files(machine)}


def blocks(name):
    """(path after "== ", text of the block) of one captured file."""
    text = (CAPTURE / name).read_text(encoding="utf-8")
    parts = re.split(r"^== (.+)\n", text, flags=re.MULTILINE)[1:]
    return zip(parts[::2], parts[1::2], strict=True)


def gpu_addresses(machine):
    """PCI addresses of the machine's GPUs: the first of the captured addresses."""
    return [
        path.split(" ")[0].rsplit("/", 1)[1]
        for path, text in blocks("sys-pci.txt")
        if "device=0x2335" in text
    ][: machine.gpus]


def driver_files(machine):
    """The files below /proc/driver."""
    files = {}
    addresses = gpu_addresses(machine)
    for path, text in blocks("proc-nvidia.txt"):
        gpu = re.search(r"/gpus/([^/]+)/", path)
        if gpu and gpu.group(1) not in addresses:
            continue
        own = text.replace(CAPTURED_DRIVER, machine.driver).replace("NVIDIA H200", machine.model)
        files["driver/" + path.removeprefix("/proc/driver/")] = own.replace(
            "Open Kernel Module for x86_64", machine.flavour_line
        )
    return files


def pci_files(machine):
    """The files below /sys/devices and /sys/bus/pci for the GPUs."""
    files = {}
    addresses = gpu_addresses(machine)
    for path, text in blocks("sys-pci.txt"):
        link, _, device = path.partition(" -> ")
        address = link.rsplit("/", 1)[1]
        if address not in addresses:
            continue
        values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        driver = values.pop("driver", None)
        values["current_link_width"] = str(machine.pcie_width)
        for name, value in values.items():
            files[f"{device.lstrip('/')}/{name}"] = value + "\n"
        if driver:
            files[f"{device.lstrip('/')}/driver"] = f"-> ../../../bus/pci/drivers/{driver}"
        files[link.lstrip("/")] = f"-> ../../..{device.removeprefix('/sys')}"
    return files


def kernel_files(machine):
    """The running kernel's release, where the machine has another than this one."""
    if machine.kernel is None:
        return {}
    return {
        "proc/sys/kernel/osrelease": machine.kernel + "\n",
        "proc/version": f"Linux version {machine.kernel} (buildd@builder) #1 SMP\n",
    }
