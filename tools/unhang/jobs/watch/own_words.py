"""What the watcher itself writes into the job's log: with `unhang watch -- torchrun … > job.log
2>&1` its words make that file grow, which is no progress of the job."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from unhang.jobs.watch.detector import NODE


class OwnWords(io.FileIO):
    """Standard error, whose bytes are counted as they are written."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.count = 0
        self._one = threading.Lock()

    def write(self, words: Any) -> int:
        with self._one:
            written = super().write(words) or 0
            self.count += written
        return written

    def taken_off(self, line: Mapping[str, Any]) -> Mapping[str, Any]:
        """The sample of a log without what was written here: of this file as it is now, for the
        sampler knew of no count. Nodes that share a file name its device unlike."""
        log = str(line.get("log"))
        with self._one:
            status = os.fstat(self.fileno())
            name = f"{status.st_dev}:{status.st_ino}"
            is_ours = log == name or (NODE in line and log.endswith(f":{status.st_ino}"))
            return {**line, "log_bytes": status.st_size - self.count} if is_ours else line


@contextlib.contextmanager
def own_words() -> Iterator[OwnWords]:
    """Counts what is written to standard error in its body, by whichever function."""
    words = OwnWords(2)
    stream = io.TextIOWrapper(
        io.BufferedWriter(words), sys.stderr.encoding, sys.stderr.errors, line_buffering=True
    )
    with contextlib.redirect_stderr(stream):
        yield words
        stream.flush()
