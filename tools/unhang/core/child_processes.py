"""Processes that end with the one that started them."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess

PR_SET_PDEATHSIG = 1
ENDING_S = 30.0  # seconds for a process to end what it has started, and to report


def die_with_parent() -> None:
    """In the child: it is killed when the process that started it dies, also by SIGKILL."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Closes its standard input, at which it ends with all that it started, or terminates one whose
    standard input is not ours; if it does not end, it is killed."""
    with contextlib.suppress(OSError):
        if process.stdin:
            process.stdin.close()
        else:
            process.terminate()
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
