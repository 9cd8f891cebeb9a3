"""Section `node`: what machine this is, from procfs, sysfs and files."""

from __future__ import annotations

import os
import sys

from ...base.mount_table import read_mounts
from ...base.parse.command_line import without_secrets
from ...base.parse.mounts import mount_of
from ...base.parse.values import clean, clean_or_none, parse_assignments, parse_meminfo
from ...base.untrusted_files import resolve_local
from .admission import read_admission
from .container_config import read_container_config
from .container_devices import read_cdi
from .cpu import count_numa_nodes, read_cpu, read_cpuinfo
from .disks import read_arrays, read_crashes, read_disks
from .host_hardware import (
    read_cpu_state,
    read_memory_errors,
    read_numa_without_memory,
    read_throttled_ms,
)
from .host_state import (
    read_cgroup,
    read_clock_source,
    read_irqbalance,
    read_name_addresses,
    read_time,
)
from .kubernetes import read_kubernetes
from .module_key import read_module_key
from .monitors import read_monitors
from .name_service import read_name_service, read_tuned_profile
from .reading import drop_ins, first_there, line_if_there, read_line, there
from .selinux import read_selinux
from .services import read_services
from .slurm import PLUGIN_FOLDERS, read_slurm
from .units import read_troubled_units
from .virtualization import read_virtualization

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import Unread

FAMILIES = (
    ("debian", "debian ubuntu"),
    ("redhat", "rhel fedora centos rocky almalinux ol amzn"),
    ("suse", "suse opensuse sles sle"),
    ("arch", "arch"),
)
BINARY_FOLDERS = ("/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin")
RUNTIMES = (
    ("docker", ("dockerd",)),
    ("containerd", ("containerd",)),
    ("podman", ("podman",)),
    ("crio", ("crio",)),
    ("enroot", ("enroot",)),
    ("apptainer", ("apptainer",)),
    ("singularity", ("singularity",)),
    (
        "nvidia-container-toolkit",
        ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-cli"),
    ),
)
APPARMOR_FOLDER = "/etc/apparmor.d"
DISKLESS_FS = ("overlay", "aufs", "tmpfs", "ramfs", "rootfs", "squashfs", "nfs", "nfs4")
# Tools that boot nodes from an image leave this folder, or this word of the kernel command line.
IMAGE_PATHS = (
    "/warewulf/config",
    "/warewulf/wwinit.d",
    "/opt/xcat/xcatinfo",
    "/xcatpost/mypostscript",
    "/cm/local/apps/cmd",
)
IMAGE_WORDS = (
    "wwid=",
    "wwinit",
    "imgurl=",
    "XCAT=",
    "CMIMAGE",
    "boot=live",
    "rd.live.image",
    "root=live:",
    "root=wwclient",
)
SECURE_BOOT_VARIABLE = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def read_node(root: Root, unread: Unread, now_s: float) -> dict[str, Any]:
    """The section's fields, except probe. now_s: the node's clock, seconds since 1970."""
    mounts = unread.attempt("image", read_mounts, root)
    cpuinfo = unread.attempt("cpu", read_cpuinfo, root)
    virtualization = read_virtualization(root, unread, mounts, cpuinfo)
    container = virtualization["is_container"]
    system = _read_system(root, unread)
    return {
        **system,
        **_read_hardware(root, unread, cpuinfo),
        **_read_host_settings(root, unread),
        "virtualization": virtualization,
        "container_runtimes": unread.attempt(
            "container_runtimes", read_runtimes, root, unread, mounts or []
        ),
        "cdi": unread.attempt("cdi", read_cdi, root, unread),
        "containers": read_container_config(root, unread),
        "kubernetes": read_kubernetes(root, unread, now_s),
        "slurm": unread.attempt("slurm", read_slurm, root, unread, mounts or []),
        "python": unread.attempt("python", read_python, root),
        "dmi": read_dmi(root, unread),
        "secure_boot": unread.attempt("secure_boot", read_secure_boot, root, container),
        "module_key": unread.attempt("module_key", read_module_key, root, unread),
        "image": read_image(root, unread, mounts, container),
        "admission": unread.attempt("admission", read_admission, root, unread),
        "monitors": unread.attempt("monitors", _read_monitors, root, unread, system, now_s),
    }


def _read_monitors(
    root: Root, unread: Unread, system: dict[str, Any], now_s: float
) -> list[dict[str, Any]]:
    """As read_monitors, for the node that has these names. Raises OSError."""
    hostname = system["hostname"] or ""
    names = (hostname, hostname.partition(".")[0], system["machine_id"])
    runs_here = root.is_live or root.has_kernel_procfs()
    return read_monitors(
        root,
        unread,
        frozenset(name for name in names if name),
        now_s if runs_here else None,
        system["uptime_s"],
    )


def _read_system(root: Root, unread: Unread) -> dict[str, Any]:
    """Names and ids of the node and of its operating system."""
    hostname = unread.attempt("hostname", read_hostname, root)
    return {
        "hostname": hostname,
        "name_service": unread.attempt("name_service", read_name_service, root),
        "name_addresses": unread.attempt("name_addresses", read_name_addresses, root, hostname),
        "machine_id": unread.attempt("machine_id", read_line, root, "/etc/machine-id", 64),
        "boot_id": unread.attempt(
            "boot_id", read_line, root, "/proc/sys/kernel/random/boot_id", 64
        ),
        "uptime_s": unread.attempt("uptime_s", read_uptime, root),
        "crashes": read_crashes(root),
        "architecture": unread.attempt("architecture", read_architecture, root),
        "os": unread.attempt("os", read_os, root),
    }


def _read_hardware(root: Root, unread: Unread, cpuinfo: str | None) -> dict[str, Any]:
    """Processors, memory and NUMA nodes."""
    return {
        "cpu": read_cpu(root, unread, cpuinfo),
        "cpu_state": unread.attempt("cpu_state", read_cpu_state, root),
        "cpu_throttled_ms": unread.attempt("cpu_throttled_ms", read_throttled_ms, root),
        "disks": unread.attempt("disks", read_disks, root),
        "arrays": unread.attempt("arrays", read_arrays, root),
        "memory_total_bytes": unread.attempt("memory_total_bytes", read_memory, root),
        "memory_errors": unread.attempt("memory_errors", read_memory_errors, root),
        "numa_nodes": unread.attempt("numa_nodes", count_numa_nodes, root),
        "numa_without_memory": unread.attempt(
            "numa_without_memory", read_numa_without_memory, root
        ),
    }


def _read_host_settings(root: Root, unread: Unread) -> dict[str, Any]:
    """Clock, time daemon, control groups and services."""
    return {
        "clock_source": unread.attempt("clock_source", read_clock_source, root),
        "time": unread.attempt("time", read_time, root, unread),
        "irqbalance": unread.attempt("irqbalance", read_irqbalance, root),
        "cgroup": unread.attempt("cgroup", read_cgroup, root),
        "selinux": unread.attempt("selinux", read_selinux, root),
        "services": unread.attempt("services", read_services, root),
        "troubled_units": unread.attempt("troubled_units", read_troubled_units, root),
        "tuned_profile": read_tuned_profile(root),
    }


def read_hostname(root: Root) -> str:
    """The kernel's name of the node, or the name in /etc. Raises OSError."""
    return line_if_there(root, "/proc/sys/kernel/hostname") or read_line(root, "/etc/hostname", 256)


def read_uptime(root: Root) -> float:
    """Seconds. Raises OSError and ValueError."""
    fields = root.text("/proc/uptime", 256).split()
    seconds = float(fields[0]) if fields else -1.0
    if not 0 <= seconds < 1e10:
        raise ValueError(f"/proc/uptime must begin with seconds, and is {' '.join(fields)[:40]!r}")
    return seconds


def read_memory(root: Root) -> int:
    """MemTotal in bytes. Raises OSError and ValueError."""
    total = parse_meminfo(root.text("/proc/meminfo", 65536)).get("MemTotal")
    if total is None:
        raise ValueError("/proc/meminfo has no MemTotal")
    return total


def read_architecture(root: Root) -> str:
    """x86_64, aarch64 …: this machine's uname, or the architecture that a recorded node's loader
    and kernel show. Raises OSError."""
    if root.is_live:
        return os.uname().machine
    recorded = line_if_there(root, "/proc/sys/kernel/arch")
    if recorded:
        return recorded
    for name, architecture in (
        ("ld-linux-x86-64.so.2", "x86_64"),
        ("ld-linux-aarch64.so.1", "aarch64"),
    ):
        if there(root, "/lib64/" + name) or there(root, "/lib/" + name):
            return architecture
    raise FileNotFoundError(
        2, "this kernel does not name its architecture", "/proc/sys/kernel/arch"
    )


def read_os(root: Root) -> dict[str, Any]:
    """{id, version_id, codename, family, pretty_name}. Raises OSError."""
    path = first_there(root, ("/etc/os-release", "/usr/lib/os-release")) or "/etc/os-release"
    values = parse_assignments(root.text(path, 65536))
    names = [values.get("ID", "")] + values.get("ID_LIKE", "").split()
    family = next(
        (
            family
            for family, known in FAMILIES
            for name in names
            if name.partition("-")[0] in known.split()
        ),
        "other" if names[0] else None,
    )
    return {
        "id": clean_or_none(values.get("ID", ""), 64),
        "version_id": clean_or_none(values.get("VERSION_ID", ""), 64),
        "codename": clean_or_none(values.get("VERSION_CODENAME", ""), 64),
        "family": family,
        "pretty_name": clean_or_none(values.get("PRETTY_NAME", ""), 256),
    }


def read_runtimes(root: Root, unread: Unread, mounts: Sequence[Mount]) -> list[dict[str, Any]]:
    """[{name, path, version, apparmor_profile}] of the container runtimes whose program or plugin
    is there. Raises OSError."""
    found: list[dict[str, Any]] = []
    for runtime, programs in RUNTIMES:
        path = first_there(
            root, [folder + "/" + program for program in programs for folder in BINARY_FOLDERS]
        )
        if path:
            found.append({"name": runtime, "path": path, "version": None})
    plugin = find_pyxis(root, mounts)
    if plugin:
        found.append({"name": "pyxis", "path": plugin, "version": None})
    profiles = (
        unread.attempt("container_runtimes[*].apparmor_profile", root.names, APPARMOR_FOLDER)
        if found
        else None
    )
    for row in found:
        row["apparmor_profile"] = (
            None if profiles is None else any(row["name"] in name for name in profiles)
        )
    if found:
        unread.add(
            "container_runtimes[*].version",
            "absent",
            "no file states it without starting the program; packages.installed has it for"
            " packages",
        )
    return found


def find_pyxis(root: Root, mounts: Sequence[Mount]) -> str | None:
    """The line of Slurm's configuration that loads Pyxis (path:line), or the plugin's own path;
    None without it. A network file system is not touched."""
    for folder in ("/etc/slurm", "/etc/slurm-llnl"):
        try:
            resolve_local(root, mounts, folder)
        except OSError:
            continue
        for path in [folder + "/plugstack.conf"] + drop_ins(root, [folder + "/plugstack.conf.d"]):
            try:
                lines = root.text(path, 65536).splitlines()
            except (OSError, ValueError):
                continue
            for number, line in enumerate(lines, 1):
                if "spank_pyxis.so" in line and not line.lstrip().startswith("#"):
                    return f"{path}:{number}"
    return next(
        (
            folder + "/spank_pyxis.so"
            for folder in PLUGIN_FOLDERS
            if there(root, folder + "/spank_pyxis.so")
        ),
        None,
    )


def read_python(root: Root) -> dict[str, Any]:
    """{path, version}: the interpreter that runs this code, or for a recorded node the target of
    /usr/bin/python3. Raises OSError."""
    if root.is_live:
        return {"path": clean_or_none(sys.executable or ""), "version": sys.version.split()[0]}
    path = root.resolve("/usr/bin/python3")
    root.stat(path)
    version = path.rpartition("/python")[2]
    return {
        "path": clean(path),
        "version": version if version.replace(".", "").isdigit() and "." in version else None,
    }


def read_dmi(root: Root, unread: Unread) -> dict[str, Any] | None:
    """{vendor, product, board, bios_version}, or None if the machine has no DMI table."""
    folder = "/sys/class/dmi/id"
    if not there(root, folder):
        unread.add("dmi", "absent", "no " + folder + ": the firmware gives no SMBIOS table")
        return None
    names = (
        ("vendor", "sys_vendor"),
        ("product", "product_name"),
        ("board", "board_name"),
        ("bios_version", "bios_version"),
    )
    return {
        key: unread.attempt("dmi." + key, read_line, root, folder + "/" + name, 256) or None
        for key, name in names
    }


def read_secure_boot(root: Root, is_container: bool) -> bool:
    """True or False; False for a machine that was not booted through EFI. Raises OSError and
    ValueError."""
    if not root.exists("/sys/firmware/efi"):
        if is_container or not root.exists("/sys/firmware"):
            raise FileNotFoundError(2, "the firmware cannot be seen from here", "/sys/firmware/efi")
        return False
    value = root.data(SECURE_BOOT_VARIABLE, 16)
    if len(value) < 5:
        raise ValueError(
            f"{SECURE_BOOT_VARIABLE} must have 4 attribute bytes and a flag, and has {len(value)}"
            " bytes"
        )
    return value[4] == 1


def read_image(
    root: Root, unread: Unread, mounts: list[Mount] | None, is_container: bool
) -> dict[str, Any] | None:
    """{kind, evidence}: whether changes on this system survive a reboot."""
    if is_container:
        unread.add("image", "absent", "a container's file system says nothing about the node")
        return {"kind": None, "evidence": None}
    parameters = without_secrets(line_if_there(root, "/proc/cmdline") or "").split()
    evidence = next((path for path in IMAGE_PATHS if there(root, path)), None)
    evidence = evidence or next(
        (
            "kernel command line " + word
            for word in parameters
            for mark in IMAGE_WORDS
            if word.startswith(mark)
        ),
        None,
    )
    top = mount_of(mounts or [], "/")
    if evidence is not None:
        return {"kind": "stateless", "evidence": clean(evidence, 512)}
    if top is None:
        if mounts is not None:
            unread.add("image", "absent", "the mount table names no root file system")
        return None
    kind = "stateless" if top.fs_type in DISKLESS_FS else "installed"
    return {"kind": kind, "evidence": clean("root file system " + top.fs_type, 512)}
