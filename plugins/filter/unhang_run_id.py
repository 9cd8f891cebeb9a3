# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Names for runs that change nodes, and whether the run that a node's lock names has ended on this controller."""

from __future__ import annotations

import datetime
import getpass
import multiprocessing
import os
import re
import socket
from pathlib import Path


def main_process():
    """Process id of ansible-playbook itself; tasks are templated in it and in workers that it forks."""
    parent = multiprocessing.parent_process()
    return parent.pid if parent else os.getpid()


def here():
    """This machine's name, of letters that a run's id may have."""
    return re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())


def new_run_id(_ignored=""):
    """Such as 20261120T070000Z-ctl1-4711: when, where, and which process."""
    return f"{datetime.datetime.now(tz=datetime.UTC):%Y%m%dT%H%M%SZ}-{here()}-{main_process()}"


def who_runs(_ignored=""):
    """Such as ops@ctl1."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = str(os.getuid())
    return f"{os.environ.get('SUDO_USER') or user}@{here()}"


def run_is_over(holder):
    """True when a lock's run was started on this machine and its process is gone; False when it lives or it cannot be known. holder: the lock, or none."""
    found = re.fullmatch(r"\d{8}T\d{6}Z-(?P<host>.+)-(?P<pid>\d+)", str((holder or {}).get("run") or ""))
    if not found or found["host"] != here():
        return False
    if int(found["pid"]) == main_process():
        return True  # another id, so an earlier process that had our number
    try:
        words = Path(f"/proc/{found['pid']}/cmdline").read_bytes()
        # A process that is just being started has no words yet; one that has ended and waits for its parent has none either.
        return b"ansible" not in words if words else Path(f"/proc/{found['pid']}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return Path("/proc/self/cmdline").exists()
    except OSError:
        return False


class FilterModule:
    """What Ansible looks for."""

    def filters(self):
        """Filters by name."""
        return {"unhang_run_id": new_run_id, "unhang_run_by": who_runs, "unhang_run_is_over": run_is_over}
