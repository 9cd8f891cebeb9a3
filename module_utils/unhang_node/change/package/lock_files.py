"""Finds the process that holds a package manager's lock files; waits for it until a deadline."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from typing import NamedTuple, Optional, Sequence

from ..atomic_files import place_of
from .programs import command_line
from .values import Locked

# Held while packages change; apt's other locks only protect its downloads.
DPKG_LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock")
APT_LOCKS = (*DPKG_LOCKS, "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")
# for both paths of rpm's database
RPM_LOCKS = ("/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock")
_FLOCK = "hhqqi"  # struct flock of fcntl(2): type, whence, start, length, pid
PAUSE_S = 0.5


class LockHolder(NamedTuple):
    """A process that holds a lock. pid: 0 for a process of another container."""

    path: str
    pid: int
    command: str


def holder_of(place: str) -> Optional[int]:
    """Pid of the process that holds a lock on a file, 0 if that process is not visible, None if
    there is none. Raises OSError."""
    try:
        descriptor = os.open(place, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        answer = fcntl.fcntl(
            descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        )
    finally:
        os.close(descriptor)
    kind, _whence, _start, _length, pid = struct.unpack(_FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else int(pid)


def find_holder(rootfs: str, paths: Sequence[str]) -> Optional[LockHolder]:
    """The first lock that a process holds, or None."""
    for path in paths:
        pid = holder_of(place_of(rootfs, path))
        if pid is not None:
            return LockHolder(path=path, pid=pid, command=command_line(pid))
    return None


def wait_for_locks(rootfs: str, paths: Sequence[str], timeout_s: float) -> str:
    """ "" if there was no lock, else its holder and the time waited. Raises Locked with the holder,
    OSError."""
    began, holder = time.monotonic(), ""
    while True:
        found = find_holder(rootfs, paths)
        waited_s = time.monotonic() - began
        if found is None:
            return holder and f"waited {waited_s:.0f} s for {holder}"
        holder = f"{found.path} (pid {found.pid}: {found.command})"
        if waited_s >= timeout_s:
            next_step = "wait for it to end, or look at what it does"
            raise Locked(
                f"the package manager is still in use after {timeout_s:g} s, by {holder};"
                f" {next_step}"
            )
        time.sleep(PAUSE_S)
