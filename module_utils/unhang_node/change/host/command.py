"""Runs one program of the node with a deadline, for what no file can say: update-grub, grubby, mount, modprobe, systemctl."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/"}


class Failed(ValueError):
    """A program ended with another code than 0; the text is one line: which, its code and the last that it said."""


def run_program(argv: Sequence[str], deadline_s: float = 60) -> str:
    """Its standard output. Raises Failed, OSError (the program is not there) and TimeoutError."""
    environment = ENVIRONMENT
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=deadline_s, env=environment, check=False)
    except subprocess.TimeoutExpired:
        raise TimeoutError(110, f"no answer within {deadline_s} s", " ".join(argv)) from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).decode("utf-8", "replace").split())[-400:]
        raise Failed("{}: ended with {}: {}".format(" ".join(argv), done.returncode, said or "and said nothing"))
    return done.stdout.decode("utf-8", "replace")


def is_there(rootfs: str, *paths: str) -> bool:
    """True when one of these programs is on the node."""
    return any(os.path.exists((rootfs if rootfs != "/" else "") + path) for path in paths)
