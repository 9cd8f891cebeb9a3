"""Sets dpkg's selections, which hold and unhold packages; waits for dpkg's lock until a
deadline."""

from __future__ import annotations

import re
import time
from typing import List, Optional, Sequence

from ....base.process import run_process
from ..programs import missing
from ..values import Locked

CALL_DEADLINE_S = 120
PAUSE_S = 1.0
_LOCKED = re.compile(
    r"(locked by another process|database is locked|lock is held|unable to access dpkg status"
    r" area).*",
    re.I,
)


def select_packages(
    rootfs: str, hold: Sequence[str], unhold: Sequence[str], lock_timeout_s: float
) -> None:
    """hold, unhold: names in dpkg's notation. Raises Locked, OSError, and ValueError with dpkg's
    output."""
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
            raise Locked(
                f"dpkg's lock is still taken after {lock_timeout_s:g} s ({problem}); wait for it,"
                " or look at what it does"
            )
        time.sleep(PAUSE_S)


def merge_journal(rootfs: str) -> None:
    """Merges the journal of a killed dpkg into its database, which apt requires. Runs no package
    scripts. Raises OSError, ValueError with dpkg's output."""
    problem = call(_argv(rootfs), "")
    if problem:
        raise ValueError("dpkg --set-selections: " + problem)


def _argv(rootfs: str) -> List[str]:
    return ["dpkg", *([] if rootfs == "/" else ["--root=" + rootfs]), "--set-selections"]


def call(argv: Sequence[str], text: str) -> Optional[str]:
    """None if the program succeeded, else the error in one line. Raises OSError."""
    result = run_process(argv, CALL_DEADLINE_S, stdin=text)
    if result.is_missing:
        raise missing(result)
    if result.timed_out:
        raise TimeoutError(110, f"no answer within {CALL_DEADLINE_S} s", " ".join(argv))
    # dpkg only prints warnings for some faults; reading the selections back finds these.
    return (result.last_words or f"ended with {result.code}") if result.code else None
