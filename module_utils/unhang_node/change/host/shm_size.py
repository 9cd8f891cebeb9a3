"""Makes /dev/shm as large as jobs need it, now and at every boot, and never smaller than it is."""

from __future__ import annotations

import os

from ...parse.values import parse_meminfo
from ...root import Root
from ...sections.virtualization import container_kind
from ..config.own_files import plan_gone, plan_own
from ..files import read_state, write_state
from .command import Failed, run_program

SHM = "/dev/shm"  # noqa: S108 - what it is about
UNIT = "unhang-shm-size.service"
UNIT_PATH = "/etc/systemd/system/" + UNIT
WANTS = "/etc/systemd/system/local-fs.target.d/unhang-shm-size.conf"  # as a link among its wants, but a file like all others
OWNER = "host_tuning_shm"
PAGE = 4096


def unit_lines(size):
    """Our unit. systemd takes $$ for $ and %% for %; a /dev/shm that is larger by then stays as it is."""
    script = 'now=$$(( $$(stat -f -c "%%b * %%S" {0}) )); [ "$$now" -ge {1} ] || mount -o remount,size={1} {0}'.format(SHM, size)
    return [
        "[Unit]",
        "Description=/dev/shm of at least {} bytes".format(size),
        "DefaultDependencies=no",
        "After=systemd-remount-fs.service",
        "Before=local-fs.target",
        "ConditionPathIsMountPoint={}".format(SHM),
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        "ExecStart=/bin/sh -c '{}'".format(script),
    ]


def rounded(size):
    """The kernel rounds up to pages, so that what is asked for can be compared with what is there."""
    return -(-size // PAGE) * PAGE


def size_now():
    """Bytes of /dev/shm. Raises OSError."""
    told = os.statvfs(SHM)
    return told.f_blocks * told.f_frsize


def memory_total(rootfs):
    """Bytes, or None where nothing tells."""
    try:
        return parse_meminfo(Root([rootfs]).text("/proc/meminfo", 65536)).get("MemTotal")
    except (OSError, ValueError):
        return None


def why_not():
    """Why it cannot be made larger here, or None."""
    if not os.path.ismount(SHM):
        return "{} is no mount of its own; it is as large as what it lies on".format(SHM)
    kind = container_kind(Root(), None)
    if kind and not os.path.isdir("/run/systemd/system"):
        given = "docker run --shm-size, or an emptyDir of medium Memory in a pod"
        return "{} cannot be made larger in a {} container: it comes from the container's runtime ({})".format(SHM, kind, given)
    return None


def plan_size(rootfs, size):
    """Plan. Raises ValueError where the node has not as much memory."""
    total = memory_total(rootfs)
    if total is not None and size > total:
        raise ValueError("expected at most the {} bytes of memory that this node has, found shm_bytes {}: it would die before it is full".format(total, size))
    return plan_own(rootfs, {UNIT_PATH: unit_lines(rounded(size)), WANTS: ["[Unit]", "Wants=" + UNIT]})


def plan_without(rootfs):
    """Plan that takes both files away."""
    return plan_gone(rootfs, OWNER, [UNIT_PATH, WANTS])


def size_before():
    """Bytes that /dev/shm had before us, where that may be given back: it is still ours, and what lies in it fits."""
    saved = read_state("/", OWNER)
    if not saved or size_now() != saved.get("set") or not isinstance(saved.get("running"), int):
        return None
    return None if why_no_less(saved["running"]) else saved["running"]


def why_no_less(size):
    """Why /dev/shm cannot be as small as that, or None. Raises OSError."""
    told = os.statvfs(SHM)
    used = (told.f_blocks - told.f_bfree) * told.f_frsize
    why = "stays at {} bytes, for {} bytes lie in it and it had {}; remove what nobody needs and mount it again"
    return None if used < size else why.format(size_now(), used, size)


def remember(size):
    """Saves what there was before we made it larger; the first counts."""
    saved = read_state("/", OWNER)
    write_state("/", OWNER, dict(saved, running=saved.get("running", size_now()), set=rounded(size)))


def forget(rootfs):
    """After it was taken back."""
    write_state(rootfs, OWNER, {})


def remount(size):
    """Raises ValueError with mount's words, or when the size is another afterwards."""
    try:
        run_program(["mount", "-o", "remount,size={}".format(rounded(size)), SHM])
    except Failed as problem:
        raise ValueError("{}; in a container {} is as large as its runtime makes it".format(problem, SHM)) from None
    if size_now() != rounded(size):
        raise ValueError("{}: expected {} bytes, found {} after it was mounted again".format(SHM, rounded(size), size_now()))
