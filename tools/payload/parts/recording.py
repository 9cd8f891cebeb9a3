"""Flight recordings and other files that one process writes for another."""

from __future__ import annotations

import base64
import contextlib
import os
import sys
from collections.abc import Callable, Iterator

from .run import Run


def recording_path(folder: str, rank: int) -> str:
    """Where a rank's flight recording goes."""
    return os.path.join(folder, "flight-%d" % rank)


def write_flight_recording(run: Run) -> None:
    """torch's own record of the last collectives (a pickle), where this torch keeps one. It is there whole or not at all."""
    path = recording_path(run.folder, run.rank)
    with contextlib.suppress(Exception):  # a recorder that is missing or broken must not cost the other evidence
        import torch._C._distributed_c10d as inner

        dump = getattr(inner, "_dump_nccl_trace" if run.backend == "nccl" else "_dump_fr_trace", None) or inner._dump_fr_trace  # type: ignore[attr-defined]
        with open(path + ".partial", "wb") as sink:
            sink.write(recorded(dump))
        os.replace(path + ".partial", path)


def recorded(dump: Callable[..., bytes]) -> bytes:
    """The record. To name Python's frames torch loads its compiler, seconds of imports in the middle of a hang: only where that is loaded already."""
    if "torch._dynamo" in sys.modules:
        return dump()
    try:
        return dump(includeCollectives=True, includeStackTraces=False)
    except TypeError:  # a torch that has no such choice
        return dump()


def nccl_log(folder: str, rank: int) -> tuple[str, str]:
    """Where NCCL logs, and where stands which part of that log speaks of other groups than that of all ranks."""
    return os.path.join(folder, "nccl-%d.log" % rank), os.path.join(folder, "nccl-%d.others" % rank)


@contextlib.contextmanager
def logs_of_others(run: Run) -> Iterator[None]:
    """What NCCL logs meanwhile is of groups whose ranks are counted anew, so it says nothing of the ranks of all."""
    log, record = nccl_log(run.folder, run.rank)
    with open(record, "a", encoding="ascii") as target:
        target.write("%d " % (os.path.getsize(log) if os.path.exists(log) else 0))
        target.flush()
        yield
        target.write("%d " % (os.path.getsize(log) if os.path.exists(log) else 0))


def read_nccl_log(folder: str, rank: int, limit: int = 4 << 20) -> str:
    """The end of a rank's NCCL log, without what it says of other groups."""
    path, record = nccl_log(folder, rank)
    log = read_tail(path, 1 << 30).encode()
    bounds = [int(word) for word in read_tail(record).split()] + [len(log)]
    for begin, end in reversed(list(zip(bounds[::2], bounds[1::2]))):
        log = log[:begin] + log[end:]
    return log[-limit:].decode("utf-8", "replace")


def read_tail(path: str, limit: int = 16000) -> str:
    """The end of a text file."""
    try:
        with open(path, "rb") as source:
            source.seek(max(0, os.path.getsize(path) - limit))
            return source.read().decode("utf-8", "replace")
    except OSError:
        return ""


def read_encoded(path: str, limit: int = 131072) -> str | None:
    """A binary file as base64, or None. What is too large is left out, for half a pickle is none."""
    try:
        if os.path.getsize(path) > limit:
            return None
        with open(path, "rb") as source:
            return base64.b64encode(source.read()).decode("ascii")
    except OSError:
        return None
