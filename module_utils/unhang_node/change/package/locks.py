"""Who has dpkg's and apt's locks, and waits for them no longer than told."""

from __future__ import annotations

import fcntl
import os
import struct
import time

from ..files import place_of
from .manager import Locked

LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")
_FLOCK = "hhqqi"  # struct flock of fcntl(2): type, whence, start, length, pid
PAUSE_S = 0.5


def holder_of(place):
    """Pid of the process that has a lock on a file, 0 when it is one that we cannot see, None when nobody has. Raises OSError."""
    try:
        descriptor = os.open(place, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    finally:
        os.close(descriptor)
    kind, _whence, _start, _length, pid = struct.unpack(_FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else pid


def process_words(pid):
    """What a process is called, for a person: its command line, cut."""
    try:
        with open("/proc/{}/cmdline".format(pid), "rb") as source:
            words = source.read(400).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        words = ""
    return words[:200] or "a process of another container"


def find_holder(rootfs):
    """(path, pid, words) of the first lock that somebody has, or None."""
    for path in LOCKS:
        pid = holder_of(place_of(rootfs, path))
        if pid is not None:
            return path, pid, process_words(pid)
    return None


def wait_for_locks(rootfs, timeout_s):
    """"" when nobody had a lock, else who had it and for how long we waited. Raises Locked naming the holder, OSError."""
    began, told = time.monotonic(), ""
    while True:
        found = find_holder(rootfs)
        waited_s = time.monotonic() - began
        if found is None:
            return told and "waited {:.0f} s for {}".format(waited_s, told)
        told = "{} (pid {}: {})".format(*found)
        if waited_s >= timeout_s:
            raise Locked("expected the package manager to be free within {:g} s, found {}; wait for it to end, or look at what it does".format(timeout_s, told))
        time.sleep(PAUSE_S)
