"""The samples of a job as they come, from a process of its own; and the end of a job."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from unhang.jobs.inspect.here import node_program
from unhang_node.base.root import Root
from unhang_node.job.process_table import ancestors, read_stats, stat_of

SILENT_S = 20.0  # longer than the slowest answer of RAS with all its tries
MOST_LINE_BYTES = 4 << 20
MOST_ERRORS = 1 << 16  # bytes of what a sampler says of itself


def live_samples(pid: int, every_s: float) -> Iterator[Mapping[str, Any]]:
    """The trace of the job of a process, until that process ends. A sampler that falls silent is
    replaced by one that does not ask the driver."""
    ranks = json.dumps({"pids": [pid]})
    for more in ([], ["no-driver"]):
        argv = [*node_program("samples"), ranks, str(every_s), *more]
        with sampler(argv) as child:
            yield from (json.loads(line) for line in raw_lines(child, SILENT_S + every_s))
        if child.returncode == 0 or not is_running(pid):
            return
        yield {"silent": "the driver"}


@contextlib.contextmanager
def sampler(
    argv: Sequence[str], descriptors: Sequence[int] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the body; what it said on standard error is then written here, among
    the watcher's own words."""
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=descriptors,
            start_new_session=True,
        )
        assert child.stdout is not None
        try:
            with child.stdout:
                yield child
        finally:
            child.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(1)
            errors.seek(0)
            sys.stderr.write(errors.read(MOST_ERRORS).decode("utf-8", "replace"))


def raw_lines(child: subprocess.Popen[bytes], silent_s: float) -> Iterator[bytes]:
    """What a program prints, until it ends or says nothing for so long. A line that is longer than
    MOST_LINE_BYTES ends it too."""
    assert child.stdout is not None
    rest = b""
    while len(rest) <= MOST_LINE_BYTES and select.select([child.stdout], [], [], silent_s)[0]:
        piece = os.read(child.stdout.fileno(), 1 << 16)
        if not piece:
            child.wait()
            return
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    stat = stat_of(Root(), pid)
    return stat is not None and stat.state != "Z"


def end_job(pid: int, grace_s: float) -> None:
    """SIGTERM to the process, which ends its own children as a launcher does; after the grace
    SIGKILL to what is left of it and of what it had started."""
    root = Root()
    stats = read_stats(root)
    meant = {other: stats[other].started for other in stats if pid in ancestors(stats, other)}
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + grace_s
    while _left(meant) and time.monotonic() < until:
        time.sleep(0.2)
    for other in _left(meant):
        with contextlib.suppress(OSError):
            os.kill(other, signal.SIGKILL)


def _left(meant: Mapping[int, int]) -> list[int]:
    found = {pid: stat_of(Root(), pid) for pid in meant}
    return [
        pid
        for pid, stat in found.items()
        if stat and stat.started == meant[pid] and stat.state != "Z"
    ]
