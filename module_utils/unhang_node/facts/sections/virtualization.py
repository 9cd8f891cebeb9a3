"""Whether the node is a virtual machine, a container, or neither, judged from files alone."""

from __future__ import annotations

from ...base.parse.mounts import mount_of
from .reading import line_if_there, there

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.parse.mounts import Mount
    from ...base.root import Root
    from ...base.section import Unread

# Beginning of DMI's vendor, product, board or BIOS, and the hypervisor that writes it. The first
# match wins.
DMI_MARKS = (
    ("KubeVirt", "kvm"),
    ("OpenStack", "kvm"),
    ("KVM", "kvm"),
    ("Amazon EC2", "amazon"),
    ("Google Compute Engine", "google"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "oracle"),
    ("VirtualBox", "oracle"),
    ("Oracle Corporation", "oracle"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "hyperv"),
    ("Virtual Machine", "hyperv"),
    ("Nutanix", "kvm"),
)
# A paravirtual clock belongs to one hypervisor; it exists even on machines without DMI.
CLOCK_MARKS = (("kvm-clock", "kvm"), ("hyperv_clocksource", "hyperv"), ("xen", "xen"))
CGROUP_MARKS = (
    ("kubepods", "kubernetes"),
    ("docker", "docker"),
    ("libpod", "podman"),
    ("lxc", "lxc"),
    ("machine.slice/machine-", "systemd-nspawn"),
)


def read_virtualization(
    root: Root, unread: Unread, mounts: list[Mount] | None, cpuinfo: str | None
) -> dict[str, Any]:
    """{kind, is_vm, is_container}. mounts: [Mount] or None; cpuinfo: the first block of
    /proc/cpuinfo or None."""
    container = container_kind(root, mounts)
    is_vm, hypervisor = vm_kind(root, cpuinfo)
    if is_vm is None:
        unread.add(
            "virtualization.is_vm",
            "absent",
            "neither the hypervisor flag of /proc/cpuinfo nor /sys/class/dmi/id says so",
        )
    kind = container or hypervisor or ("none" if is_vm is False else None)
    return {"kind": kind, "is_vm": is_vm, "is_container": container is not None}


def has_capability(root: Root, number: int) -> bool:
    """Whether this process has a capability of <linux/capability.h>. Raises OSError."""
    status = root.text("/proc/self/status", 65536).split("\n")
    return bool(
        next((int(line.split()[1], 16) for line in status if line.startswith("CapEff:")), 0)
        >> number
        & 1
    )


def container_kind(root: Root, mounts: list[Mount] | None) -> str | None:
    """The container manager's name, "container" if only the mounts show a container, or None."""
    named = line_if_there(root, "/run/systemd/container")
    if named:
        return named.split()[0][:64]
    for path, kind in (
        ("/run/.containerenv", "podman"),
        ("/.dockerenv", "docker"),
        ("/.singularity.d", "apptainer"),
    ):
        if there(root, path) and not is_whole_disk(mount_of(mounts or [], "/")):
            return kind
    if "microsoft" in (line_if_there(root, "/proc/sys/kernel/osrelease") or "").lower() and there(
        root, "/run/WSL"
    ):
        return "wsl"
    cgroup = line_if_there(root, "/proc/1/cgroup") or ""
    for mark, kind in CGROUP_MARKS:
        if mark in cgroup:
            return kind
    # OCI runtimes mount these three files one by one; the boot of a machine does not.
    points = {mount.point for mount in mounts or []}
    return "container" if {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"} <= points else None


def is_whole_disk(mount: Mount | None) -> bool:
    """True when "/" is a whole file system on a disk: a machine that was made from a container
    image still has /.dockerenv."""
    return (
        mount is not None
        and mount.source.startswith("/dev/")
        and mount.subtree == "/"
        and mount.fs_type in ("ext4", "xfs", "ext3")
    )


def vm_kind(root: Root, cpuinfo: str | None) -> tuple[bool | None, str | None]:
    """(is_vm or None, hypervisor's name or None). The CPU's flag decides where it exists, because
    DMI of bare-metal cloud nodes names the cloud too."""
    flag = hypervisor_flag(cpuinfo)
    if flag is False:
        return False, None
    kind = (
        dmi_kind(root)
        or clock_kind(root)
        or acpi_kind(root)
        or line_if_there(root, "/sys/hypervisor/type")
    )
    if flag or kind:
        return True, kind or "vm-other"
    return (False, None) if there(root, "/sys/class/dmi/id/sys_vendor") else (None, None)


def hypervisor_flag(cpuinfo: str | None) -> bool | None:
    """True or False by the flags of an x86 CPU; None where there are no such flags (ARM, POWER)."""
    for line in (cpuinfo or "").splitlines():
        if line.startswith("flags"):
            return "hypervisor" in line.split()
    return None


def dmi_kind(root: Root) -> str | None:
    """The hypervisor that DMI names, or None."""
    texts = [
        line_if_there(root, "/sys/class/dmi/id/" + name) or ""
        for name in ("product_name", "sys_vendor", "board_vendor", "bios_vendor")
    ]
    if texts[0].endswith(".metal"):
        return None  # DMI of EC2's bare-metal instances names EC2 too
    for mark, kind in DMI_MARKS:
        if any(text.startswith(mark) for text in texts):
            return kind
    return None


def clock_kind(root: Root) -> str | None:
    """The hypervisor whose clock the kernel offers, or None."""
    clocks = (
        line_if_there(root, "/sys/devices/system/clocksource/clocksource0/available_clocksource")
        or ""
    ).split()
    if any(clock.startswith("kvm-clock") for clock in clocks):
        # Firecracker is a KVM machine without DMI; its ACPI tables contain its name.
        return acpi_kind(root) or "kvm"
    for mark, kind in CLOCK_MARKS:
        if any(clock.startswith(mark) for clock in clocks):
            return kind
    return None


def acpi_kind(root: Root) -> str | None:
    """firecracker if the header of the ACPI table names it as its maker (bytes 10 to 16), or None.
    Only root may read it."""
    try:
        return (
            "firecracker"
            if root.data("/sys/firmware/acpi/tables/DSDT", 36)[10:16] == b"FIRECK"
            else None
        )
    except (OSError, ValueError):
        return None
