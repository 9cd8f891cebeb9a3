"""Asks dpkg to hold packages, and waits for its lock no longer than it is told to."""

from __future__ import annotations

import re
import subprocess
import time

ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/"}
CALL_DEADLINE_S = 120
PAUSE_S = 1.0
_LOCKED = re.compile(r"(locked by another process|database is locked|lock is held|unable to access dpkg status area).*", re.I)


class Locked(ValueError):
    """The package manager was at work for all the time that we were told to wait."""


def select_packages(rootfs, hold, unhold, lock_timeout_s):
    """Sets dpkg's selections. hold, unhold: names as dpkg takes them. Raises Locked, OSError, ValueError with what dpkg said."""
    text = "".join(["{} hold\n".format(name) for name in hold] + ["{} install\n".format(name) for name in unhold])
    command = ["dpkg"] + ([] if rootfs == "/" else ["--root=" + rootfs]) + ["--set-selections"]
    until = time.monotonic() + lock_timeout_s
    while True:
        said = call(command, text)
        if said is None:
            return
        locked = _LOCKED.search(said)
        if not locked:
            raise ValueError("dpkg --set-selections: " + said)
        if time.monotonic() >= until:
            raise Locked("expected dpkg's lock within {:g} s, found it taken ({}); wait for it, or look at what it does".format(lock_timeout_s, said))
        time.sleep(PAUSE_S)


def settle_journal(rootfs):
    """After a dpkg that was cut off: its journal goes into its database, without which apt does nothing. Runs no script of a package.

    Raises OSError, ValueError with what dpkg said.
    """
    said = call(["dpkg"] + ([] if rootfs == "/" else ["--root=" + rootfs]) + ["--set-selections"], "")
    if said:
        raise ValueError("dpkg --set-selections: " + said)


def call(command, text):
    """None when the command succeeded, else the one line that it gave for it. Raises OSError."""
    try:
        done = subprocess.run(
            command, input=text.encode("utf-8"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=CALL_DEADLINE_S, env=ENVIRONMENT, check=False
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(110, "no answer within {} s".format(CALL_DEADLINE_S), " ".join(command)) from None
    # What dpkg warns of and goes on is seen when the selections are read back.
    said = " ".join(done.stderr.decode("utf-8", "replace").split())[-400:]
    return (said or "ended with {}".format(done.returncode)) if done.returncode else None
