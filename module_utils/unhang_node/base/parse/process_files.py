"""What /proc shows of a process: open devices, mapped libraries, its container, and the few
variables that may leave the node."""

from __future__ import annotations

import re
import struct

from ..named_tuple import NamedTuple
from .assignment import Assignment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_NEEDLES = (b"/libnccl", b"/torch/lib/libtorch_cuda.so\n", b"/torch/lib/libtorch_cpu.so\n")
_DELETED = " (deleted)"
_CONTAINERS = (
    (re.compile(r"docker[-/]([0-9a-f]{12})[0-9a-f]{52}"), "docker"),
    (re.compile(r"libpod-([0-9a-f]{12})[0-9a-f]{52}"), "podman"),
    (re.compile(r"cri-containerd-([0-9a-f]{12})[0-9a-f]{52}"), "containerd"),
    (re.compile(r"crio-([0-9a-f]{12})[0-9a-f]{52}"), "crio"),
    (re.compile(r"kubepods[^\n]*[/-]([0-9a-f]{12})[0-9a-f]{52}"), "kubernetes"),
    (re.compile(r"/lxc(?:\.payload)?[./]([^/\n]{1,64})"), "lxc"),
)
AT_SECURE = 23  # linux/auxvec.h
NUMBERED = re.compile(r"/dev/nvidia\d+$")


def held_devices(targets: Iterable[str]) -> list[str]:
    """The GPU devices that a process has open: /dev/nvidia0 …, or, without those, the first of the
    others (/dev/nvidiactl); sorted, each once."""
    devices = sorted(
        {target for target in targets if target.startswith("/dev/nvidia")}, key=_device_order
    )
    numbered = [device for device in devices if NUMBERED.match(device)]
    return numbered or devices[:1]


def _device_order(device: str) -> tuple[int, int, str]:
    number = device[len("/dev/nvidia") :]
    return (0, int(number), "") if number.isdigit() and len(number) < 9 else (1, 0, device)


def mapped_libraries(maps: bytes) -> dict[str, bool]:
    """{path: replaced} of the libraries of interest in /proc/<pid>/maps (bytes); replaced: the file
    was deleted or overwritten since it was mapped."""
    found: dict[str, bool] = {}
    for needle in _NEEDLES:
        # searched as bytes, which is fast: a training process has a megabyte of these lines
        at = maps.find(needle)
        while at >= 0:
            start, end = maps.rfind(b"\n", 0, at) + 1, maps.find(b"\n", at + 1)
            line = maps[start : end if end >= 0 else len(maps)].decode("utf-8", "replace")
            path = line[line.find("/") :]
            deleted = path.endswith(_DELETED)
            path = path[: -len(_DELETED)] if deleted else path
            if ".so" in path.rpartition("/")[2]:
                found[path] = found.get(path, False) or deleted
            at = maps.find(needle, end if end >= 0 else len(maps))
    return found


def site_packages_of(path: str) -> str | None:
    """The site-packages folder in …/site-packages/torch/lib/libtorch_cuda.so, or None."""
    for ending in ("/torch/lib/libtorch_cuda.so", "/torch/lib/libtorch_cpu.so"):
        if path.endswith(ending):
            return path[: -len(ending)]
    return None


def container_of(cgroup: str) -> str | None:
    """The container in /proc/<pid>/cgroup, as docker:0123456789ab, or None."""
    for pattern, runtime in _CONTAINERS:
        found = pattern.search(cgroup)
        if found:
            return f"{runtime}:{found.group(1)}"
    return None


def parse_environ(content: bytes) -> list[Assignment]:
    """[Assignment] of /proc/<pid>/environ (bytes), line None."""
    rows = []
    for entry in content.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and name:
            rows.append(
                Assignment(
                    name=name.decode("utf-8", "replace"),
                    value=value.decode("utf-8", "replace"),
                    line=None,
                )
            )
    return rows


def parse_parent(status: str) -> int | None:
    """The parent's process id in /proc/<pid>/status, or None."""
    found = re.search(r"^PPid:\s+(\d+)", status, re.M)
    return int(found.group(1)) if found else None


def parse_uid(status: str) -> int | None:
    """The real user id in /proc/<pid>/status, or None."""
    found = re.search(r"^Uid:\s+(\d+)", status, re.M)
    return int(found.group(1)) if found else None


class Credentials(NamedTuple):
    """groups: supplementary ones, sorted; permitted: capabilities as bits."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    permitted: int


def parse_credentials(status: str) -> Credentials | None:
    """The ids and rights in /proc/<pid>/status; None if its uids or gids differ among themselves,
    as in a set-user-ID program, or are not there."""
    rows = {
        name: value.split()
        for name, _, value in (line.partition(":") for line in status.splitlines())
    }
    uids, gids, groups = set(rows.get("Uid", ())), set(rows.get("Gid", ())), rows.get("Groups", [])
    if (
        len(uids) != 1
        or len(gids) != 1
        or not all(word.isdigit() for word in (*uids, *gids, *groups))
    ):
        return None
    permitted = (rows.get("CapPrm") or ["0"])[0]
    bits = int(permitted, 16) if re.fullmatch("[0-9a-f]{1,16}", permitted) else 0
    return Credentials(
        uid=int(*uids), gid=int(*gids), groups=tuple(sorted(map(int, groups))), permitted=bits
    )


def is_secure_exec(auxv: bytes) -> bool:
    """Whether the kernel started the program with rights that its caller lacked (AT_SECURE in
    /proc/<pid>/auxv)."""
    return any(
        kind == AT_SECURE and value
        for kind, value in struct.iter_unpack("=QQ", auxv[: len(auxv) // 16 * 16])
    )


def parse_flags(fdinfo: str) -> int:
    """How a descriptor was opened, by /proc/<pid>/fdinfo/<number>. Raises ValueError if it does not
    say so."""
    found = re.search(r"^flags:\s+0?([0-7]{1,22})$", fdinfo, re.M)
    if not found:
        raise ValueError("the flags of a descriptor are missing")
    return int(found.group(1), 8)
