"""Ends a connection whose answer never ends. Ansible holds all of it in memory, and if the kernel
kills a worker, the whole audit ends."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

# memory by which a worker may grow during the answer of one node; an answer has at most 4 MiB
MOST_BYTES = 192 * 1024 * 1024
LOOK_EVERY_S = 0.05


class MemoryWatch:
    """While it is open, more memory than MOST_BYTES sends SIGALRM to this process, whose handler
    (that of the task's timeout) raises in the main thread.

    exceeded: whether that happened. Without a handler nothing is watched, because the signal would
    end the process.
    """

    def __init__(self, most_bytes: int = MOST_BYTES):
        self.most_bytes = most_bytes
        self.exceeded = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryWatch:
        if callable(signal.getsignal(signal.SIGALRM)):
            self._start = resident_bytes()
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()  # so that its signal comes while this is open, or not at all

    def _watch(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            if resident_bytes() - self._start > self.most_bytes:
                self.exceeded = True
                os.kill(os.getpid(), signal.SIGALRM)
                return


def bound_output(connection: Any, most_bytes: int) -> None:
    """Limits the output of a connection's commands, before Ansible converts it to a text and a list
    of lines, which takes twenty times as much memory.

    One byte more than the limit remains, so that the reader sees that it was exceeded.
    """
    execute = connection.exec_command

    def bounded(*arguments: Any, **more: Any) -> Any:
        code, out, err = execute(*arguments, **more)
        return code, out[: most_bytes + 1], err[:most_bytes]

    connection.exec_command = bounded


def resident_bytes() -> int:
    """Memory of this process; 0 if unknown."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except (OSError, ValueError, IndexError):
        return 0
