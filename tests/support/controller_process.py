"""A running program on the controller, in a process group of its own, which ends with its test in
every case."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess


@contextlib.contextmanager
def under_way(command, environment, log):
    """The process. Killed with its whole group when the block ends, so that a controller ends
    without a message to any node. log: an open file."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
