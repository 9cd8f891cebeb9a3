"""What the recorded file trees of the demo fleet hold, layer by layer: {path: text, bytes or Link}.
Written to disk by build.py."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True)
class Link:
    """A symbolic link and what it says."""

    target: str


Tree = dict[str, str | bytes | Link]


def system(
    name: str, version: str, codename: str, release: str, python: str, extra_modules: str = ""
) -> Tree:
    """A distribution with one kernel: os-release, procfs, boot files, limits of sshd."""
    limits = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n"
        "Max open files            1048576              1048576              files     \n"
        "Max processes             unlimited            unlimited            processes \n"
    )
    kernel = f"Linux version {release}"
    return {
        "etc/os-release": (
            f'PRETTY_NAME="{name}"\nNAME="Ubuntu"\nVERSION_ID="{version}"\nVERSION_CODENAME={codename}\nID=ubuntu\nID_LIKE=debian\n'
        ),
        "etc/systemd/logind.conf": "[Login]\nRemoveIPC=no\n",
        "usr/lib/systemd/systemd-logind": "",
        "usr/bin/python3": Link(python),
        f"usr/bin/{python}": "",
        "proc/sys/kernel/osrelease": release + "\n",
        "proc/sys/kernel/version": (
            "#85-Ubuntu SMP PREEMPT_DYNAMIC\n" if "6.8" in release else "#1-Ubuntu SMP\n"
        ),
        "proc/sys/kernel/arch": "x86_64\n",
        "proc/sys/kernel/tainted": "12288\n",
        "proc/sys/kernel/modprobe": "/sbin/modprobe\n",
        "proc/sys/kernel/numa_balancing": "0\n",
        "proc/sys/vm/overcommit_memory": "0\n",
        "proc/version": kernel + "\n",
        "proc/cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{release} root=/dev/sda1 ro\n",
        "proc/modules": "ext4 1011712 1 - Live 0x0000000000000000\n" + extra_modules,
        "proc/net/if_inet6": "",
        "proc/self/mountinfo": (
            "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n23 22 0:20 / /dev/shm rw,nosuid,nodev -"
            " tmpfs tmpfs rw\n"
        ),
        "proc/self/limits": limits,
        "run/sshd.pid": "700\n",
        "proc/700/comm": "sshd\n",
        "proc/700/limits": limits,
        f"boot/vmlinuz-{release}": "",
        "boot/grub/grub.cfg": (
            f"set default=\"0\"\nmenuentry 'Ubuntu, with Linux {release}' --id 'gnulinux-{release}'"
            f" {{\n  linux /boot/vmlinuz-{release} root=/dev/sda1 ro\n  initrd"
            f" /boot/initrd.img-{release}\n}}\n"
        ),
        f"lib/modules/{release}/modules.dep": "",
        ".unhang/space.json": space(shm=64 * GIB, temp=200 * GIB),
        "tmp/.keep": "",
        "var/tmp/.keep": "",
        "sys/kernel/uevent_seqnum": "4242\n",
        "sys/firmware/acpi/pm_profile": "4\n",
        "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
        "sys/fs/cgroup/system.slice/ssh.service/cgroup.procs": "700\n",
        "sys/fs/cgroup/system.slice/chrony.service/cgroup.procs": "650\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never\n",
    }


def space(shm: int, temp: int) -> str:
    """The recorded answers of statvfs."""
    scratch = (max(temp, 20 * GIB), temp)
    # names in a recording, nothing is opened
    sizes = {"/dev/shm": (shm, shm), "/tmp": scratch, "/var/tmp": scratch}  # noqa: S108
    return (
        json.dumps(
            {
                path: {"size_bytes": size, "free_bytes": free}
                for path, (size, free) in sizes.items()
            },
            indent=1,
        )
        + "\n"
    )


def driver(version: str, flavour: str, release: str, fabric_manager: bool = False) -> Tree:
    """A driver, loaded, on disk and with its libraries; persistence daemon running."""
    library = "usr/lib/x86_64-linux-gnu"
    kind = (
        "UNIX Open Kernel Module for x86_64" if flavour == "open" else "UNIX x86_64 Kernel Module"
    )
    dkms = "var/lib/dkms/nvidia"
    tree: Tree = {
        "proc/driver/nvidia/version": (
            f"NVRM version: NVIDIA {kind}  {version}  Release Build  (dvs-builder@U22)\nGCC"
            " version:  gcc version 13.3.0\n"
        ),
        "proc/driver/nvidia/params": 'EnableMSI: 1\nEnableGpuFirmware: 18\nRegistryDwords: ""\n',
        "proc/modules": (
            "nvidia_uvm 2170880 0 - Live 0x0000000000000000 (POE)\nnvidia 14381056 42 nvidia_uvm,"
            " Live 0x0000000000000000 (POE)\n"
        ),
        "sys/module/nvidia/version": version + "\n",
        f"{library}/libnvidia-ml.so.{version}": "",
        f"{library}/libnvidia-ml.so.1": Link(f"libnvidia-ml.so.{version}"),
        f"{library}/libcuda.so.{version}": "",
        f"{library}/libcuda.so.1": Link(f"libcuda.so.{version}"),
        f"lib/modules/{release}/modules.dep": "updates/dkms/nvidia.ko.zst:\n",
        f"{dkms}/{version}/source": "",
        f"{dkms}/{version}/{release}/x86_64/module/nvidia.ko.zst": "",
        f"{dkms}/kernel-{release}-x86_64": Link(f"{version}/{release}/x86_64"),
        "sys/fs/cgroup/system.slice/nvidia-persistenced.service/cgroup.procs": "710\n",
        "proc/710/comm": "nvidia-persiste\n",
    }
    if fabric_manager:
        tree |= {
            "usr/bin/nv-fabricmanager": "",
            "sys/fs/cgroup/system.slice/nvidia-fabricmanager.service/cgroup.procs": "720\n",
            "proc/720/comm": "nv-fabricmanage\n",
            "etc/systemd/system/multi-user.target.wants/nvidia-fabricmanager.service": Link(
                "/usr/lib/systemd/system/nvidia-fabricmanager.service"
            ),
        }
    return tree


def packages(rows: Iterable[tuple[str, str, str]]) -> str:
    """A dpkg status file. rows: (name, version, install or hold)."""
    return "".join(
        f"Package: {name}\nStatus: {wanted} ok installed\nArchitecture: amd64\nVersion:"
        f" {version}\n\n"
        for name, version, wanted in rows
    )


def nccl_library(version: str, cuda: str) -> Tree:
    """A libnccl as the loader finds it: an ELF file that holds nothing but the banner."""
    folder = "usr/lib/x86_64-linux-gnu"
    return {
        f"{folder}/libnccl.so.{version}": elf_with_text(f"NCCL version {version}+cuda{cuda}"),
        f"{folder}/libnccl.so.2": Link(f"libnccl.so.{version}"),
    }


def elf_with_text(text: str) -> bytes:
    """A 64-bit little-endian ELF file with one .rodata section."""
    names = b"\0.rodata\0.shstrtab\0"
    rodata = text.encode() + b"\0"
    table = 64 + len(rodata) + len(names)
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    )
    sections = [(0, 0, 0, 0), (1, 1, 64, len(rodata)), (9, 3, 64 + len(rodata), len(names))]
    return (
        head
        + rodata
        + names
        + b"".join(
            struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, size, 0, 0, 1, 0)
            for name, kind, offset, size in sections
        )
    )


def torch_environment(site: str, torch: str, cuda: str, nccl: str) -> Tree:
    """A Python environment with torch, as its files show it."""
    major = cuda.split(".")[0]
    bundled = {
        f"{site}/nvidia/nccl/lib/libnccl.so.2": elf_with_text(f"NCCL version {nccl}+cuda{cuda}")
    }
    return bundled | {
        f"{site}/torch/version.py": (
            f"__version__ = '{torch}+cu{cuda.replace('.', '')}'\ndebug = False\ncuda ="
            f" '{cuda}'\nhip = None\n"
        ),
        f"{site}/torch-{torch}.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n"
        ),
        f"{site}/nvidia_nccl_cu{major}-{nccl}.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: nvidia-nccl-cu{major}\nVersion: {nccl}\n"
        ),
    }


def toolkit(version: str) -> Tree:
    """A CUDA toolkit under /usr/local, the default one."""
    folder = f"usr/local/cuda-{version}"
    listing = {
        "cuda": {"name": "CUDA SDK", "version": f"{version}.1"},
        "cuda_nvcc": {"name": "CUDA NVCC", "version": f"{version}.89"},
    }
    return {
        f"{folder}/version.json": json.dumps(listing) + "\n",
        f"{folder}/bin/nvcc": "",
        "usr/local/cuda": Link(f"cuda-{version}"),
    }


def compilers(python: str) -> Tree:
    """What else a build of extensions needs."""
    return {
        "usr/bin/gcc": Link("gcc-13"),
        "usr/bin/gcc-13": "",
        "usr/bin/g++": Link("g++-13"),
        "usr/bin/g++-13": "",
        "usr/bin/ninja": "",
        "usr/bin/make": "",
        f"usr/include/{python}/Python.h": "",
    }
