"""For what the main thread of a rank waits in the kernel: a child, a lock and who holds it, a file,
a FIFO, a socket.

Read of a process are the call that it is in, and the names of its descriptors, none of which is
opened or followed. Source of the numbers: asm/unistd_64.h of x86 and asm-generic/unistd.h.

A file is the one that is locked where superblock and inode are the same: /proc/locks has the
superblock's device, and the mount table has it for the mount of a descriptor. stat(2) has another
one on btrfs, and waits for servers that do not answer. Source: proc_locks(5), proc_pid_fdinfo(5)
and proc_pid_mountinfo(5).
"""

from __future__ import annotations

import os
import re

from ..facts.sections.reading import text_if_there
from .owners import Process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..base.root import Root
    from .parse.process_state import Stat

_NUMBERS = {
    "x86_64": {
        0: "read", 1: "write", 7: "poll", 17: "read", 18: "write", 19: "read", 20: "write",
        23: "select", 42: "connect", 43: "accept", 44: "send", 45: "recv", 46: "send", 47: "recv",
        61: "wait", 72: "lock", 73: "flock", 74: "fsync", 75: "fsync", 232: "epoll",
        247: "wait", 270: "select", 271: "poll", 281: "epoll", 288: "accept",
    },
    "aarch64": {
        22: "epoll", 25: "lock", 32: "flock", 63: "read", 64: "write", 65: "read", 66: "write",
        67: "read", 68: "write", 72: "select", 73: "poll", 82: "fsync", 83: "fsync", 95: "wait",
        202: "accept", 203: "connect", 206: "send", 207: "recv", 211: "send", 212: "recv",
        242: "accept", 260: "wait",
    },
}  # fmt: skip
# where the call is hidden: the kernel's function in which the thread waits
_PLACES = (
    (re.compile(r"^do_wait"), "wait"),
    (re.compile(r"locks_lock_inode_wait|flock_lock|posix_lock|fcntl_setlk"), "flock"),
    (re.compile(r"csk_accept|^unix_accept"), "accept"),
    (re.compile(r"^(anon_)?pipe_read|^wait_for_partner|^fifo_open"), "read"),
    (re.compile(r"^(sk_wait_data|tcp_recvmsg|unix_stream_read|skb_wait)"), "recv"),
    (re.compile(r"^ep_poll"), "epoll"),
)
WITH_A_CHILD, WITHOUT_DESCRIPTOR = ("wait",), ("poll", "select", "wait")
LOCKS = ("flock", "lock")
POLLS = "polls"  # no call: asleep, with a file open whose lock another process holds
MOST_WATCHED, MOST_CHARACTERS = 64, 400
_LOCK = re.compile(r"^(\d+): (-> )?\w+ +\w+ +(\w+) +(-?\d+) ([0-9a-f]+:[0-9a-f]+:\d+) ", re.M)
_MOUNTED = re.compile(r"^mnt_id:\s+(\d+)$", re.M)
_INODE = re.compile(r"^ino:\s+(\d+)$", re.M)  # Linux 5.14
_HELD = "\nlock:"  # through this descriptor
_MOUNT = re.compile(r"^(\d+) \d+ (\d+):(\d+) .* - (\S+) ", re.M)
WITH_SUBVOLUMES = ("btrfs", "bcachefs")  # of one superblock, in which a number of an inode recurs
_WATCHED = re.compile(r"^tfd:\s+(\d+) ", re.M)


def wait_of(
    root: Root,
    pid: int,
    started: int,
    wchan: str | None,
    stats: dict[int, Stat],
    sockets: dict[str, dict[str, str]],
) -> dict[str, Any] | None:
    """{call, target, sockets, child, holder}, None for a thread that waits for none of these.

    target: what the descriptor leads to; sockets: those waited for, of `sockets` ({inode: row}),
    several for epoll; child, holder: {pid, command, state}. wchan: where the kernel says it sleeps.
    Raises OSError, Denied if the process is another process now.
    """
    with Process(pid, started) as process:
        call, arguments = _call(_text(process, "syscall"), wchan)
        row: dict[str, Any] = dict.fromkeys(("target", "child", "holder"))
        row.update(call=call, sockets=[])
        locks = _LOCK.findall(text_if_there(root, "/proc/locks", 1 << 20))
        if call is None:
            # who shares a lock keeps nobody out, and who waits for its own lock does not poll
            own = {file for *_, owner, file in locks if int(owner) == pid}
            held = {
                file: int(owner)
                for _, waits, kind, owner, file in locks
                if kind == "WRITE" and not waits and file not in own
            }
            opened = _opened(process) if held else {}
            for file, owner in held.items():
                if file in opened and owner in stats:
                    row.update(call=POLLS, target=_target(process, opened[file]))
                    return {**row, "holder": _named(owner, stats)}
            return None
        number = None if call in WITHOUT_DESCRIPTOR or not arguments else arguments[0]
        if call in WITH_A_CHILD:
            row["child"] = _child(pid, arguments, stats)
        if call in LOCKS:
            file, holder = _lock(locks, pid)
            row["holder"] = _named(holder, stats)
            number = _opened(process).get(file) if number is None and file else number
        if call == "epoll" and number is not None:
            watched = _WATCHED.findall(_text(process, f"fdinfo/{number}"))[:MOST_WATCHED]
            targets = [_target(process, int(one)) for one in watched]
        else:
            row["target"] = _target(process, number)
            targets = [row["target"]]
        inodes = [target[len("socket:[") : -1] for target in targets if target]
        row["sockets"] = [sockets[inode] for inode in inodes if inode in sockets]
        return row


def _call(syscall: str, wchan: str | None) -> tuple[str | None, list[int]]:
    """(call, its arguments); of a call that is hidden the name alone."""
    words = syscall.split()
    if words and words[0].isdigit():
        name = _NUMBERS.get(os.uname().machine, {}).get(int(words[0]))
        return name, [int(word, 16) for word in words[1:4]]
    found = (name for place, name in _PLACES if place.search(wchan or ""))
    return next(found, None), []


def _child(pid: int, arguments: list[int], stats: dict[int, Stat]) -> dict[str, Any] | None:
    """The child that is waited for; the only one that there is, where the call does not say it."""
    children = [other for other, stat in stats.items() if stat.parent == pid]
    asked = [arguments[at] for at in (0, 1) if len(arguments) > at and arguments[at] in children]
    one = asked[0] if asked else children[0] if len(children) == 1 else None
    return _named(one, stats)


def _lock(locks: list[tuple[str, ...]], pid: int) -> tuple[str | None, int | None]:
    """(file, who holds it) of the lock that a process waits for, by rows of /proc/locks."""
    holders: dict[str, int] = {}
    for number, waits, _kind, owner, file in locks:
        if not waits:
            holders[number] = int(owner)
        elif int(owner) == pid:
            return file, holders.get(number)
    return None, None


def _named(pid: int | None, stats: dict[int, Stat]) -> dict[str, Any] | None:
    stat = stats.get(pid or 0)
    return {"pid": pid, "command": stat.command, "state": stat.state} if stat else None


def _opened(process: Process) -> dict[str, int]:
    """{file, as /proc/locks has it: a descriptor of it}, without those through which a lock is
    held, and without what is on none of the process's own mounts."""
    devices = {
        mount: f"{int(major):02x}:{int(minor):02x}"
        for mount, major, minor, kind in _MOUNT.findall(_text(process, "mountinfo"))
        if kind not in WITH_SUBVOLUMES
    }
    try:
        folder = os.open("fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process.folder)
    except OSError:
        return {}
    try:
        numbers = [int(name) for name in os.listdir(folder)]
    finally:
        os.close(folder)
    found: dict[str, int] = {}
    for number in numbers[:4096]:
        text = _text(process, f"fdinfo/{number}")
        mount, inode = _MOUNTED.search(text), _INODE.search(text)
        if mount and inode and mount[1] in devices and _HELD not in text:
            found.setdefault(f"{devices[mount[1]]}:{inode[1]}", number)
    return found


def _target(process: Process, number: int | None) -> str | None:
    if number is None:
        return None
    try:
        return process.link(f"fd/{number}")[:MOST_CHARACTERS]
    except OSError:
        return None


def _text(process: Process, name: str) -> str:
    """A file that the kernel writes, "" where it is hidden from this user."""
    try:
        return process.text(name)
    except OSError:
        return ""
