"""Namespaces of processes, by the kernel's word alone: who made the users of a container, and which
network is a process's localhost."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct

from ..base.named_tuple import NamedTuple
from ..base.section import Denied
from .owners import Process, call_libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..base.root import Root

NS_GET_PARENT, NS_GET_OWNER_UID = 0xB702, 0xB704  # linux/nsfs.h
CLONE_NEWNET = 0x40000000


class Person(NamedTuple):
    """Who starts processes. space: a user namespace that root made, whose users are one person
    then; "" otherwise."""

    uid: int | None
    space: str = ""


def namespace_of(root: Root, pid: int, kind: str) -> str | None:
    """Such as mnt:[4026531841] for kind mnt; None where that is hidden."""
    try:
        return os.readlink(root.candidates(f"/proc/{pid}/ns/{kind}")[0])
    except OSError:
        return None


def maker_of_users(root: Root, pid: int) -> Person | None:
    """Who made the user namespace that a process is in, the outermost below this process's own: all
    uids inside are that person's (subuid). None where it is in none, and where that is hidden."""
    ours = os.stat("/proc/self/ns/user")
    with contextlib.ExitStack() as opened:
        try:
            here = _owned_descriptor(
                opened,
                os.open(root.candidates(f"/proc/{pid}/ns/user")[0], os.O_RDONLY | os.O_CLOEXEC),
            )
            while not os.path.samestat(os.fstat(here), ours):
                above = _owned_descriptor(opened, fcntl.ioctl(here, NS_GET_PARENT))
                if os.path.samestat(os.fstat(above), ours):
                    (uid,) = struct.unpack("=I", fcntl.ioctl(here, NS_GET_OWNER_UID, bytes(4)))
                    return Person(uid, "" if uid else f"user:[{os.fstat(here).st_ino}]")
                here = above
        except OSError:  # EPERM: it is not below this process's own
            pass
    return None


def _owned_descriptor(opened: contextlib.ExitStack, descriptor: int) -> int:
    opened.callback(os.close, descriptor)
    return descriptor


def by_network(root: Root, ranks: list[dict[str, Any]]) -> list[tuple[bool, list[dict[str, Any]]]]:
    """[(whether they are in this process's network, ranks of one network)], this one first. A rank
    whose network is hidden counts as in it."""
    ours = namespace_of(root, os.getpid(), "net")
    networks: dict[str | None, list[dict[str, Any]]] = {}
    for row in ranks:
        networks.setdefault(namespace_of(root, row["pid"], "net") or ours, []).append(row)
    return sorted(
        ((network == ours, rows) for network, rows in networks.items()),
        key=lambda pair: not pair[0],
    )


@contextlib.contextmanager
def network_of(pid: int, started: int) -> Iterator[None]:
    """Sockets that are opened within are of that process's network. Raises Denied when this process
    may not enter it, OSError."""
    with contextlib.ExitStack() as opened:
        ours = _owned_descriptor(opened, os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
        with Process(pid, started) as process:
            theirs = _owned_descriptor(
                opened, os.open("ns/net", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process.folder)
            )
        try:
            call_libc("setns", theirs, CLONE_NEWNET)
        except PermissionError:
            raise Denied(
                f"only root may enter the network of process {pid}; or run unhang-inspect.pyz"
                " in the container"
            ) from None
        try:
            yield
        finally:
            try:
                call_libc("setns", ours, CLONE_NEWNET)
            except (
                OSError
            ) as problem:  # nothing more may be asked here, where localhost is another one
                raise RuntimeError(
                    f"this process could not leave the network of process {pid}"
                ) from problem
