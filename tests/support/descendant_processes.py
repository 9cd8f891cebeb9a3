"""Processes that a test has started: the descendants of a process, whatever namespace they
entered."""

from __future__ import annotations

import os


def launched_by(pid, ancestor):
    """Whether a process is the one that was started, or was started by it. pid: as text."""
    while pid not in ("0", "1", ""):
        if int(pid) == ancestor:
            return True
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as source:
                pid = source.read().rpartition(")")[2].split()[1]
        except OSError:
            return False
    return False


def launched(ancestor, argv=b""):
    """pids of a process's descendants whose command line has these words."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as source:
                output = source.read().replace(b"\0", b" ")
        except OSError:
            continue
        if argv in output and launched_by(pid, ancestor):
            found.append(int(pid))
    return found
