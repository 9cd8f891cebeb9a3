"""Enlarges /dev/shm to the size that jobs need, now and at every boot; never makes it smaller."""

from __future__ import annotations

import os

from ...base.parse.values import parse_meminfo
from ...base.process import ProgramFailed, output_of
from ...base.root import Root
from ...facts.sections.virtualization import container_kind
from ..config.own_files import FilePlan, plan_gone, plan_own
from ..journal.running_values import Change
from .setting import Setting, original_value

SHM = "/dev/shm"  # noqa: S108 - what it is about
UNIT = "unhang-shm-size.service"
UNIT_PATH = "/etc/systemd/system/" + UNIT
# like a link in the target's .wants folder, but a plain file
WANTS = "/etc/systemd/system/local-fs.target.d/unhang-shm-size.conf"
OWNER = "host_tuning_shm"
PAGE = 4096


def unit_lines(size: int) -> list[str]:
    """Lines of unhang's unit, in which $$ means $ and %% means %. A /dev/shm that is larger when
    the unit starts is not changed."""
    script = (
        f'now=$$(( $$(stat -f -c "%%b * %%S" {SHM}) )); [ "$$now" -ge {size} ] || mount -o'
        f" remount,size={size} {SHM}"
    )
    return [
        "[Unit]",
        f"Description=/dev/shm of at least {size} bytes",
        "DefaultDependencies=no",
        "After=systemd-remount-fs.service",
        "Before=local-fs.target",
        f"ConditionPathIsMountPoint={SHM}",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        f"ExecStart=/bin/sh -c '{script}'",
    ]


def rounded(size: int) -> int:
    """The size rounded up to pages, as the kernel does it, so that it can be compared with the size
    of /dev/shm."""
    return -(-size // PAGE) * PAGE


def size_now() -> int:
    """Size of /dev/shm in bytes. Raises OSError."""
    status = os.statvfs(SHM)
    return status.f_blocks * status.f_frsize


def memory_total(rootfs: str) -> int | None:
    """Memory of the node in bytes, or None if it cannot be read."""
    try:
        total: int | None = parse_meminfo(Root([rootfs]).text("/proc/meminfo", 65536)).get(
            "MemTotal"
        )
        return total
    except (OSError, ValueError):
        return None


def why_not() -> str | None:
    """The reason why /dev/shm cannot be enlarged here, or None."""
    if not os.path.ismount(SHM):
        return f"{SHM} is no mount of its own; it is as large as what it lies on"
    kind = container_kind(Root(), None)
    if kind and not os.path.isdir("/run/systemd/system"):
        given = "docker run --shm-size, or an emptyDir of medium Memory in a pod"
        return (
            f"{SHM} cannot be made larger in a {kind} container: it comes from the container's"
            f" runtime ({given})"
        )
    return None


def plan_size(rootfs: str, size: int | None) -> Setting:
    """size: None to undo it, which leaves a /dev/shm alone whose content would not fit. Raises
    OSError, and ValueError if the node does not have that much memory."""
    live, total, wanted = rootfs == "/", memory_total(rootfs), None
    if size is None:
        plan = plan_gone(rootfs, OWNER, [UNIT_PATH, WANTS])
        before = original_value(rootfs, OWNER, size_now()) if live else None
        wanted = None if before is None or why_no_less(before) else before
    else:
        is_due = live and size_now() < size
        why = why_not() if live else None
        if why:
            return Setting(OWNER, FilePlan(manual=[why] if is_due else []))
        if total is not None and size > total:
            raise ValueError(
                f"shm_bytes {size} is more than the {total} bytes of memory that this node has: it"
                " would die before it is full"
            )
        lines = {UNIT_PATH: unit_lines(rounded(size)), WANTS: ["[Unit]", "Wants=" + UNIT]}
        plan, wanted = plan_own(rootfs, lines), rounded(size) if is_due else None
    return Setting(
        owner=OWNER,
        plan=plan,
        changes=[]
        if wanted is None
        else [Change(kind="shm_size", name=SHM, value=size_now(), wanted=wanted)],
        write=lambda _name, value: remount(value),
        keeps_original=True,
    )


def why_no_less(size: int) -> str | None:
    """The reason why /dev/shm cannot be shrunk to this size, or None. Raises OSError."""
    status = os.statvfs(SHM)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    if used < size:
        return None
    return (
        f"stays at {size_now()} bytes, because {used} bytes are in use and it had {size}; remove"
        " unneeded files and mount it again"
    )


def remount(size: int) -> None:
    """Mounts /dev/shm with this size. Raises ValueError with mount's message, or if the size
    differs afterwards."""
    try:
        output_of(["mount", "-o", f"remount,size={rounded(size)}", SHM])
    except ProgramFailed as problem:
        raise ValueError(
            f"{problem}; in a container {SHM} is as large as its runtime makes it"
        ) from None
    if size_now() != rounded(size):
        raise ValueError(
            f"{SHM} has {size_now()} bytes, not {rounded(size)}, after it was mounted again"
        )
