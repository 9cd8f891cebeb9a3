"""Sets dpkg's selections, which hold and unhold packages; waits for dpkg's lock no longer than allowed."""

from __future__ import annotations

import re
import subprocess
import time
from typing import List, Optional, Sequence

from ..programs import ENVIRONMENT
from ..values import Locked

CALL_DEADLINE_S = 120
PAUSE_S = 1.0
_LOCKED = re.compile(r"(locked by another process|database is locked|lock is held|unable to access dpkg status area).*", re.I)


def select_packages(rootfs: str, hold: Sequence[str], unhold: Sequence[str], lock_timeout_s: float) -> None:
    """hold, unhold: names as dpkg takes them. Raises Locked, OSError, ValueError with what dpkg printed."""
    text = "".join([f"{name} hold\n" for name in hold] + [f"{name} install\n" for name in unhold])
    until = time.monotonic() + lock_timeout_s
    while True:
        problem = call(_argv(rootfs), text)
        if problem is None:
            return
        locked = _LOCKED.search(problem)
        if not locked:
            raise ValueError("dpkg --set-selections: " + problem)
        if time.monotonic() >= until:
            raise Locked(f"expected dpkg's lock within {lock_timeout_s:g} s, found it taken ({problem}); wait for it, or look at what it does")
        time.sleep(PAUSE_S)


def merge_journal(rootfs: str) -> None:
    """After a dpkg that was killed: its journal goes into its database, without which apt does nothing. Runs no script of a package.

    Raises OSError, ValueError with what dpkg printed.
    """
    problem = call(_argv(rootfs), "")
    if problem:
        raise ValueError("dpkg --set-selections: " + problem)


def _argv(rootfs: str) -> List[str]:
    return ["dpkg", *([] if rootfs == "/" else ["--root=" + rootfs]), "--set-selections"]


def call(argv: Sequence[str], text: str) -> Optional[str]:
    """None when the program succeeded, else its reason in one line. Raises OSError."""
    try:
        done = subprocess.run(
            argv, input=text.encode("utf-8"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=CALL_DEADLINE_S, env=ENVIRONMENT, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(110, f"no answer within {CALL_DEADLINE_S} s", " ".join(argv)) from None
    # What dpkg warns of and goes on is seen when the selections are read back.
    output = " ".join(done.stderr.decode("utf-8", "replace").split())[-400:]
    return (output or f"ended with {done.returncode}") if done.returncode else None
