"""Reads what belongs to a process with that process's rights: a child becomes its user, in its view
of the files, and answers through a pipe.

Whatever a user's descriptor, link, variable or path leads to is opened by such a child alone. Root
reads of a process only what the kernel says of it in /proc.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import stat as stat_bits
import struct

from ..base.named_tuple import NamedTuple
from ..base.parse.mounts import parse_mountinfo
from ..base.parse.process_files import is_secure_exec, parse_credentials
from ..base.probe import run_sources
from ..base.root import Root
from ..base.section import Denied, one_line, status_of_error
from .parse.process_state import parse_stat
from .views import View, inside_uid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from ..base.context import Context
    from ..base.section import UnreadRow

    Piece = tuple[dict[str, Any], list[UnreadRow]]
    ReadView = Callable[[Context, View, list[int]], Iterator[Piece]]

CAP_SYS_PTRACE = 19
GRACE_S = 3.0  # for children that are killed at their limit
TEXT_BYTES = 4 << 20
# linux/prctl.h
PDEATHSIG, SET_DUMPABLE, SET_KEEPCAPS, SET_SECUREBITS = 1, 4, 8, 28
CAP_AMBIENT, AMBIENT_RAISE = 47, 2
NO_ROOT = 3  # SECBIT_NOROOT, locked: user 0 of a container gets no capability by starting a program
CAPABILITY_VERSION = 0x20080522


class Owner(NamedTuple):
    """Rights and view of a process. capabilities: of user 0 alone, because others lose theirs with
    root's uid; base: (device, inode) of its root folder."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    capabilities: int
    mounts: str
    base: tuple[int, int]


class Process:
    """A process held by its folder in /proc: if it ends, no other process is read in its place. A
    context manager. Raises OSError, Denied."""

    def __init__(self, pid: int, started: int) -> None:
        self.pid = pid
        self.folder = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stat = parse_stat(self.text("stat"))
        if stat is None or stat.started != started:
            os.close(self.folder)
            raise Denied(f"process {pid} is another process now")

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_problem: object) -> None:
        os.close(self.folder)

    def data(self, name: str) -> bytes:
        """A file that the kernel writes. Raises OSError."""
        with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder), "rb") as source:
            return source.read(TEXT_BYTES)

    def text(self, name: str) -> str:
        """As data."""
        return self.data(name).decode("utf-8", "replace")

    def link(self, name: str) -> str:
        """Where a link leads. Raises OSError."""
        return os.readlink(name, dir_fd=self.folder)

    def stat(self, name: str) -> os.stat_result:
        """Of what a link leads to; nothing is opened. Raises OSError."""
        return os.stat(name, dir_fd=self.folder)

    def owner(self) -> Owner:
        """Raises Denied for a program that runs with rights that its user does not have,
        OSError."""
        found = parse_credentials(self.text("status"))
        if found is None or is_secure_exec(self.data("auxv")):
            raise Denied(
                f"process {self.pid} runs a program with other rights than its user's (set-user-ID,"
                " set-group-ID or file capabilities)"
            )
        uid, gid, groups, permitted = found
        base = self.stat("root")
        is_our_space = self.link("ns/user") == os.readlink("/proc/self/ns/user")
        capabilities = permitted if uid == 0 and is_our_space else 0
        return Owner(
            uid=uid,
            gid=gid,
            groups=groups,
            capabilities=capabilities,
            mounts=self.link("ns/mnt"),
            base=(base.st_dev, base.st_ino),
        )


def own() -> Owner:
    """Of this process. Raises OSError."""
    stat = parse_stat(_own_text("stat"))
    with Process(os.getpid(), stat.started if stat else -1) as process:
        return process.owner()


def _own_text(name: str) -> str:
    with open(f"/proc/self/{name}", encoding="utf-8", errors="replace") as source:
        return source.read(TEXT_BYTES)


def read_as_owners(
    ctx: Context,
    wanted: Mapping[int, int],
    read: ReadView,
    field: str,
    limit_s: float,
    capability: int | None = None,
) -> Iterator[Piece]:
    """(fields, unread rows) of read(context, view, pids), once for each owner of `wanted` ({pid:
    started}), all at once, none longer than limit_s seconds.

    read must yield plain values. A process whose owner this one cannot become costs a row of
    `field`[pid]: denied, with the reason. capability: one of root's that the children keep, for a
    program that reads processes; they then see this process's files.
    """
    owners: dict[Owner, dict[int, int]] = {}
    for pid, started in wanted.items():
        ctx.mark(f"whose process {pid} is")
        try:
            with Process(pid, started) as process:
                owners.setdefault(process.owner(), {})[pid] = started
        except OSError as problem:
            yield (
                {},
                [
                    {
                        "field": f"{field}[{pid}]",
                        "status": status_of_error(problem),
                        "reason": one_line(problem),
                    }
                ],
            )
    names = {
        f"uid {owner.uid}, process {next(iter(pids))}": owner for owner, pids in owners.items()
    }
    sources = [
        (name, functools.partial(_as_owner, owner, owners[owner], read, capability))
        for name, owner in names.items()
    ]
    ctx.mark(f"read as the users of {len(wanted)} processes", limit_s + GRACE_S)
    for answer in run_sources(sources, ctx, limit_s, limit_s):
        for piece in answer.pieces:
            yield piece.fields, piece.unread
        if answer.status != "ok":
            reason = f"as {answer.name}: {answer.error}"
            yield (
                {},
                [
                    {"field": f"{field}[{pid}]", "status": str(answer.status), "reason": reason}
                    for pid in owners[names[answer.name]]
                ],
            )


def _as_owner(
    owner: Owner, pids: dict[int, int], read: ReadView, capability: int | None, ctx: Context
) -> Iterator[tuple[str, Any, list[UnreadRow]]]:
    pid = next(iter(pids))
    with Process(pid, pids[pid]) as process:
        if process.owner() != owner:
            raise Denied(f"process {pid} has other rights by now")
        view = become(owner, process, capability)
    for fields, unread in read(ctx, view, list(pids)):
        yield "", fields, unread


def become(owner: Owner, process: Process, capability: int | None = None) -> View:
    """Takes the rights of a process for good, and its view unless a capability is kept. Raises
    OSError when this process may not. What is not root stays."""
    ours = own()
    uid_map, mounts = process.text("uid_map"), parse_mountinfo(process.text("mountinfo"))
    has_our_files = (owner.mounts, owner.base) == (ours.mounts, ours.base)
    root = Root()
    if os.geteuid() != 0:
        root = root if has_our_files else Root((f"/proc/{process.pid}/root",))
    elif owner != ours:
        if not has_our_files and capability is None:
            _enter(process, owner)
        _take_rights(owner, capability, ours.capabilities)
    return View(root=root, mounts=mounts, uid=owner.uid, inside=inside_uid(uid_map, owner.uid))


def _enter(process: Process, owner: Owner) -> None:
    """Makes the root folder of a process that of this one: links in it then lead nowhere else."""
    folder = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process.folder)
    try:
        status = os.fstat(folder)
        if (status.st_dev, status.st_ino) != owner.base:
            raise Denied(f"process {process.pid} has another root folder by now")
        os.fchdir(folder)
        os.chroot(".")
    finally:
        os.close(folder)


def _take_rights(owner: Owner, capability: int | None, allowed: int) -> None:
    """Groups, then ids, then capabilities. No process of the user may read this one's memory, which
    holds other users' answers."""
    kept = 0 if capability is None else 1 << capability
    if owner.uid == 0 or kept:
        call_libc("prctl", SET_SECUREBITS, NO_ROOT, 0, 0, 0)
        call_libc("prctl", SET_KEEPCAPS, int(bool(kept)), 0, 0, 0)
    if tuple(sorted(os.getgroups())) != owner.groups:
        os.setgroups(owner.groups)
    os.setresgid(owner.gid, owner.gid, owner.gid)
    os.setresuid(owner.uid, owner.uid, owner.uid)
    permitted = (owner.capabilities if capability is None else kept) & allowed
    halves = [(value & 0xFFFFFFFF, value >> 32) for value in (permitted, permitted, kept)]
    call_libc(
        "capset",
        struct.pack("=Ii", CAPABILITY_VERSION, 0),
        struct.pack("=6I", *(half[at] for at in (0, 1) for half in halves)),
    )
    if capability is not None:
        call_libc("prctl", CAP_AMBIENT, AMBIENT_RAISE, capability, 0, 0)
    call_libc("prctl", SET_DUMPABLE, 0, 0, 0, 0)
    call_libc("prctl", PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getresuid() != (owner.uid,) * 3 or os.getresgid() != (owner.gid,) * 3:
        raise Denied(f"this process could not become uid {owner.uid}")


def call_libc(name: str, *arguments: int | bytes) -> None:
    """Calls a function of the C library: the first argument as an int, others as unsigned long.
    Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    whole = [
        ctypes.c_ulong(argument) if isinstance(argument, int) and at else argument
        for at, argument in enumerate(arguments)
    ]
    if getattr(libc, name)(*whole) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def is_regular(status: os.stat_result) -> bool:
    """Whether a descriptor leads to a file with bytes."""
    return stat_bits.S_ISREG(status.st_mode)
