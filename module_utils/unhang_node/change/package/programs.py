"""Runs programs of the package manager that may be killed without harm, and extracts the relevant
lines of their output."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from typing import List, Optional, Sequence, Tuple

from ...base.process import ProcessResult, run_process
from ..atomic_files import place_of
from ..config.masking import mask_urls

# No package script may ask a question.
QUIET = {
    "DEBIAN_FRONTEND": "noninteractive",
    "APT_LISTCHANGES_FRONTEND": "none",
    "NEEDRESTART_SUSPEND": "1",
    "UCF_FORCE_CONFFOLD": "1",
}
CALL_DEADLINE_S = 300
DEADLINE_PASSED = -1  # unhang's own exit code
PRIVATE = ".unhang-"
VIEW_PARENT = "/var/tmp"  # noqa: S108 - mkdtemp makes the folder in it
_PROBLEM = re.compile(
    r"^(?:E: |Err:|W: (?:Failed|GPG|An error|The repository)|dpkg: (?:error|warning: old)|"
    r" (?:cannot|failed|installed|subprocess|new|unable) "
    r"|gzip: |tar: |\S+: (?:error|ERROR)| {2}\S+ : )"
)


def inside(rootfs: str, argv: Sequence[str]) -> List[str]:
    """argv that runs `argv` on a node whose / is `rootfs`."""
    return list(argv) if rootfs == "/" else ["chroot", rootfs, *argv]


def run(rootfs: str, argv: Sequence[str], deadline_s: float = CALL_DEADLINE_S) -> Tuple[int, str]:
    """(exit code, all output) of a program that may be killed without harm; the code is
    DEADLINE_PASSED if it was killed. Raises OSError.

    Credentials in URLs are masked: some of apt's messages contain a mirror's password.
    """
    result = run_process(argv, deadline_s, rootfs, variables=QUIET, merged=True)
    if result.is_missing:
        raise missing(result)
    if result.code is None:
        return DEADLINE_PASSED, mask_urls(result.stdout) + f"\nE: no answer within {deadline_s:g} s"
    return result.code, mask_urls(result.stdout)


def missing(result: ProcessResult) -> FileNotFoundError:
    """The exception for a program that is not on the node."""
    return FileNotFoundError(2, "no such program on this node", result.argv[0])


def private_folder(rootfs: str) -> str:
    """A new folder for one simulation, a path of the node; on disk, because lists need more space
    than a node's /tmp may have. It is locked until this process ends. Folders of killed processes
    are removed, because each may have a copy of all of apt's lists."""
    parent = place_of(rootfs, VIEW_PARENT)
    _sweep_abandoned(parent)
    while True:
        folder = tempfile.mkdtemp(prefix=PRIVATE, dir=parent)
        # left open on purpose: the kernel closes it when the process ends, in whatever way
        if _lock_folder(folder, fcntl.LOCK_SH) is not None:
            return VIEW_PARENT + "/" + os.path.basename(folder)


def _sweep_abandoned(parent: str) -> None:
    """Removes unhang's private folders that no process uses. In a world-writable folder, only those
    of this user."""
    for name in sorted(name for name in os.listdir(parent) if name.startswith(PRIVATE)):
        folder = os.path.join(parent, name)
        descriptor = _lock_folder(folder, fcntl.LOCK_EX)
        if descriptor is None:
            continue
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


def _lock_folder(folder: str, kind: int) -> Optional[int]:
    """A descriptor that locks the folder; None if another process has locked it, or it is no folder
    or no longer exists."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        if os.path.samestat(os.stat(folder), os.fstat(descriptor)):
            return descriptor
    except OSError:  # another process is removing it
        pass
    os.close(descriptor)
    return None


def error_lines(text: str, limit: int = 6) -> List[str]:
    """The lines that report errors; the last three if none does."""
    lines = [line.strip() for line in text.replace("\r", "\n").splitlines() if line.strip()]
    problems = [line for line in text.splitlines() if _PROBLEM.match(line)]
    once = list(dict.fromkeys(" ".join(line.split()) for line in problems))
    return once[:limit] if once else lines[-3:]


def command_line(pid: Optional[int]) -> str:
    """A process's command line, shortened, for a message."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as source:
            text = source.read(400).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        text = ""
    return text[:200] or "a process of another container"
