"""Runs the package manager's programs that may be killed without harm, and picks what matters out of what they print."""

from __future__ import annotations

import os
import re
import tempfile
from typing import List, Optional, Sequence, Tuple

from ...process import ProcessResult, run_process
from ..files import place_of

# No script of a package may ask anything.
QUIET = {"DEBIAN_FRONTEND": "noninteractive", "APT_LISTCHANGES_FRONTEND": "none", "NEEDRESTART_SUSPEND": "1", "UCF_FORCE_CONFFOLD": "1"}
CALL_DEADLINE_S = 300
DEADLINE_PASSED = -1  # a code of our own
VIEW_PARENT = "/var/tmp"  # noqa: S108 - mkdtemp makes the folder in it
_PROBLEM = re.compile(
    r"^(?:E: |Err:|W: (?:Failed|GPG|An error|The repository)|dpkg: (?:error|warning: old)| (?:cannot|failed|installed|subprocess|new|unable) "
    r"|gzip: |tar: |\S+: (?:error|ERROR)| {2}\S+ : )"
)


def inside(rootfs: str, argv: Sequence[str]) -> List[str]:
    """argv as it is run for a node whose / is `rootfs`."""
    return list(argv) if rootfs == "/" else ["chroot", rootfs, *argv]


def run(rootfs: str, argv: Sequence[str], deadline_s: float = CALL_DEADLINE_S) -> Tuple[int, str]:
    """(exit code, everything printed) of a program that may be killed without harm; DEADLINE_PASSED as the code when it was. Raises OSError."""
    result = run_process(argv, deadline_s, rootfs, variables=QUIET, merged=True)
    if result.is_missing:
        raise missing(result)
    if result.code is None:
        return DEADLINE_PASSED, result.stdout + f"\nE: no answer within {deadline_s:g} s"
    return result.code, result.stdout


def missing(result: ProcessResult) -> FileNotFoundError:
    """What to raise for a program that is not on the node."""
    return FileNotFoundError(2, "no such program on this node", result.argv[0])


def private_folder(rootfs: str) -> str:
    """A new folder for one simulation, a path of the node; on disk, for lists take more room than a node's /tmp may have."""
    return VIEW_PARENT + "/" + os.path.basename(tempfile.mkdtemp(prefix=".unhang-", dir=place_of(rootfs, VIEW_PARENT)))


def error_lines(text: str, limit: int = 6) -> List[str]:
    """The lines that say what went wrong; the last three where none does."""
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    problems = [line for line in text.splitlines() if _PROBLEM.match(line)]
    once = list(dict.fromkeys(" ".join(line.split()) for line in problems))
    return once[:limit] if once else lines[-3:]


def command_line(pid: Optional[int]) -> str:
    """A process's command line, cut, for a message."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as source:
            text = source.read(400).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        text = ""
    return text[:200] or "a process of another container"
