"""Native stacks of ranks by py-spy, where it is installed: the function below Python that a process
waits in."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import IO

from .processes import die_with_parent

SPY_S = 4.0  # for all ranks of a node together
# Without stopping the process, py-spy takes a hundredth of a second. With native frames it stops
# the process for half a second and more, but names the function of NCCL or of the driver: its
# output replaces the first, if it finishes.
SPY_WAYS = (("--nonblocking", 0.25), ("--native", 0.75))


def find_spy(python: str | None) -> str | None:
    """py-spy on PATH, or beside the Python that the ranks run under; None where there is none."""
    folders = [os.path.dirname(one) for one in (python, sys.executable) if one]
    return shutil.which("py-spy") or shutil.which("py-spy", path=os.pathsep.join(folders))


def native_stacks(spy: str, pids: list[int], limit_s: float = SPY_S) -> dict[int, str]:
    """{pid: text} with py-spy's output for each process, all at the same time and each within the
    limit."""
    found = {}
    for way, share in SPY_WAYS:
        until = time.monotonic() + limit_s * share
        looks = {pid: _look(spy, way, pid) for pid in pids}
        for pid, (process, output) in looks.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
            if process.poll() is None:
                process.kill()
            elif process.returncode == 0:
                output.seek(0)
                found[pid] = "\n".join(
                    line[:160] for line in output.read().decode("utf-8", "replace").splitlines()
                )[:8000]
            output.close()
    return found


def _look(spy: str, way: str, pid: int) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    output = tempfile.TemporaryFile()  # noqa: SIM115 -- closed by who reads it
    argv = [spy, "dump", way, "--pid", str(pid)]
    return subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    ), output
