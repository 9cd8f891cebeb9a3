"""Makes /dev/shm as large as jobs need it, now and at every boot, and never smaller than it is."""

from __future__ import annotations

import os

from ...parse.values import parse_meminfo
from ...process import ProgramFailed, output_of
from ...root import Root
from ...sections.virtualization import container_kind
from ..config.own_files import FilePlan, plan_gone, plan_own
from ..files import read_state, write_state

SHM = "/dev/shm"  # noqa: S108 - what it is about
UNIT = "unhang-shm-size.service"
UNIT_PATH = "/etc/systemd/system/" + UNIT
WANTS = "/etc/systemd/system/local-fs.target.d/unhang-shm-size.conf"  # as a link among its wants, but a file like all others
OWNER = "host_tuning_shm"
PAGE = 4096


def unit_lines(size: int) -> list[str]:
    """Our unit. systemd takes $$ for $ and %% for %; a /dev/shm that is larger by then stays as it is."""
    script = f'now=$$(( $$(stat -f -c "%%b * %%S" {SHM}) )); [ "$$now" -ge {size} ] || mount -o remount,size={size} {SHM}'
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
    """The kernel rounds up to pages, so that what is asked for can be compared with what is there."""
    return -(-size // PAGE) * PAGE


def size_now() -> int:
    """Bytes of /dev/shm. Raises OSError."""
    status = os.statvfs(SHM)
    return status.f_blocks * status.f_frsize


def memory_total(rootfs: str) -> int | None:
    """Bytes, or None where nothing tells."""
    try:
        total: int | None = parse_meminfo(Root([rootfs]).text("/proc/meminfo", 65536)).get("MemTotal")
        return total
    except (OSError, ValueError):
        return None


def why_not() -> str | None:
    """Why it cannot be made larger here, or None."""
    if not os.path.ismount(SHM):
        return f"{SHM} is no mount of its own; it is as large as what it lies on"
    kind = container_kind(Root(), None)
    if kind and not os.path.isdir("/run/systemd/system"):
        given = "docker run --shm-size, or an emptyDir of medium Memory in a pod"
        return f"{SHM} cannot be made larger in a {kind} container: it comes from the container's runtime ({given})"
    return None


def plan_size(rootfs: str, size: int) -> FilePlan:
    """FilePlan. Raises ValueError where the node has not as much memory."""
    total = memory_total(rootfs)
    if total is not None and size > total:
        raise ValueError(f"expected at most the {total} bytes of memory that this node has, found shm_bytes {size}: it would die before it is full")
    return plan_own(rootfs, {UNIT_PATH: unit_lines(rounded(size)), WANTS: ["[Unit]", "Wants=" + UNIT]})


def plan_without(rootfs: str) -> FilePlan:
    """FilePlan that takes both files away."""
    return plan_gone(rootfs, OWNER, [UNIT_PATH, WANTS])


def size_before() -> int | None:
    """Bytes that /dev/shm had before us, where that may be given back: it is still ours, and what lies in it fits."""
    saved = read_state("/", OWNER)
    if not saved or size_now() != saved.get("set") or not isinstance(saved.get("running"), int):
        return None
    return None if why_no_less(saved["running"]) else saved["running"]


def why_no_less(size: int) -> str | None:
    """Why /dev/shm cannot be as small as that, or None. Raises OSError."""
    status = os.statvfs(SHM)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    why = "stays at {} bytes, for {} bytes lie in it and it had {}; remove what nobody needs and mount it again"
    return None if used < size else why.format(size_now(), used, size)


def remember(size: int) -> None:
    """Saves what there was before we made it larger; the first counts."""
    saved = read_state("/", OWNER)
    write_state("/", OWNER, dict(saved, running=saved.get("running", size_now()), set=rounded(size)))


def forget(rootfs: str) -> None:
    """After it was taken back."""
    write_state(rootfs, OWNER, {})


def remount(size: int) -> None:
    """Raises ValueError with mount's message, or when the size is another afterwards."""
    try:
        output_of(["mount", "-o", f"remount,size={rounded(size)}", SHM])
    except ProgramFailed as problem:
        raise ValueError(f"{problem}; in a container {SHM} is as large as its runtime makes it") from None
    if size_now() != rounded(size):
        raise ValueError(f"{SHM}: expected {rounded(size)} bytes, found {size_now()} after it was mounted again")
