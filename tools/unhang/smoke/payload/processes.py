"""Watches processes from outside, and ends them."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress


def process_state(pid: int) -> tuple[str, str]:
    """(state letter, wchan) of a process, ("gone", "") when there is none."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as source:
            state = source.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone", ""
    wchan = ""
    with suppress(OSError), open("/proc/%d/wchan" % pid, encoding="ascii") as source:
        wchan = source.read().strip("0\n")
    return state, wchan


def die_with_parent() -> None:
    """Runs in a child before exec: the kernel kills the child when its parent ends, however the
    parent ends."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def signal_name(code: int) -> str | None:
    """SIGKILL for -9, None for an ordinary exit."""
    try:
        return signal.Signals(-code).name if code < 0 else None
    except ValueError:
        return "signal %d" % -code


def session_members(session: int) -> list[int]:
    """pids that have this session id, in the order of their start."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, IndexError, ValueError), open(
                "/proc/%s/stat" % name, encoding="utf-8", errors="replace"
            ) as source:
                fields = source.read().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    found.append((int(fields[19]), int(name)))
    return [pid for _, pid in sorted(found)]


def end_session(pid: int) -> None:
    """Sends SIGKILL to a session: to its process group, and to every process with its session
    id."""
    with suppress(OSError):
        os.killpg(pid, signal.SIGKILL)
    for member in session_members(pid):
        with suppress(OSError):
            os.kill(member, signal.SIGKILL)
