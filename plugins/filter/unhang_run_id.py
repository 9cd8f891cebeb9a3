# Copyright (c) the unhang authors
# SPDX-License-Identifier: Apache-2.0
"""Filters for run ids, the process of a run on this controller, and paths in the folder of
runs."""

from __future__ import annotations

import getpass
import multiprocessing
import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
_TOOLS = [str(PROJECT / name) for name in ("tools", "module_utils")]
# plain ansible-playbook may run without unhang, or with another version of it
sys.path[:0] = [folder for folder in _TOOLS if folder not in sys.path]

from unhang.core.ansible.controllers import born, machine
from unhang.core.project import checkout_of
from unhang.core.run import run_folder


def main_process() -> int:
    """Process id of ansible-playbook itself; tasks are templated in it and in workers that it
    forks."""
    parent = multiprocessing.parent_process()
    return parent.pid if parent and parent.pid else os.getpid()


def here() -> str:
    """This machine's name, reduced to characters that a run's id may contain."""
    return re.sub(r"[^A-Za-z0-9.]", "_", socket.gethostname())


def new_run_id(_ignored: object = "") -> str:
    """A new id, such as 20261120T070000Z-ctl1-4711: time, machine and process."""
    return run_folder.new_run_id(f"{here()}-{main_process()}")


def who_runs(_ignored: object = "") -> str:
    """User and machine, such as ops@ctl1."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = str(os.getuid())
    return f"{os.environ.get('SUDO_USER') or user}@{here()}"


def controller(_ignored: object = "") -> dict[str, Any]:
    """{machine, boot, pid_namespace, pid, born} of this ansible-playbook. A host's name is not
    enough, because containers and fresh images share names."""
    pid = main_process()
    return {**machine(), "pid": pid, "born": born(pid)}


def runs_path(name: str) -> str:
    """Absolute path of a file or folder in the folder of runs: UNHANG_RUNS, else runs/ of this
    checkout, else of the current folder."""
    return str(run_folder.runs_folder(checkout_of(PROJECT)).absolute() / name)


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return {
            "unhang_run_id": new_run_id, "unhang_run_by": who_runs,
            "unhang_run_controller": controller, "unhang_runs_path": runs_path,
        }  # fmt: skip
