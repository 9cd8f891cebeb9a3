"""Flight recordings and other files that one process writes for another."""

from __future__ import annotations

import base64
import contextlib
import os
import sys
from collections.abc import Callable, Iterator

from .run import Run


def recording_path(folder: str, rank: int) -> str:
    """Path of a rank's flight recording."""
    return os.path.join(folder, "flight-%d" % rank)


def write_flight_recording(run: Run) -> None:
    """Writes torch's own record of the last collectives (a pickle), if this torch keeps one. The
    file is complete or missing."""
    path = recording_path(run.folder, run.rank)
    # a recorder that is missing or broken must not prevent the other evidence
    with contextlib.suppress(Exception):
        import torch._C._distributed_c10d as inner

        name = "_dump_nccl_trace" if run.backend == "nccl" else "_dump_fr_trace"
        dump = getattr(inner, name, None) or inner._dump_fr_trace  # type: ignore[attr-defined]
        with open(path + ".partial", "wb") as sink:
            sink.write(recorded(dump))
        os.replace(path + ".partial", path)


def recorded(dump: Callable[..., bytes]) -> bytes:
    """The record. To name Python's frames torch loads its compiler, which takes seconds of imports
    during a hang: done only where it is loaded already."""
    if "torch._dynamo" in sys.modules:
        return dump()
    try:
        return dump(includeCollectives=True, includeStackTraces=False)
    except TypeError:  # this torch has no such option
        return dump()


def nccl_log(folder: str, rank: int) -> tuple[str, str]:
    """The path of NCCL's log file, and that of the file that lists the parts of it that concern
    other groups than that of all ranks."""
    return os.path.join(folder, "nccl-%d.log" % rank), os.path.join(folder, "nccl-%d.others" % rank)


@contextlib.contextmanager
def logs_of_others(run: Run) -> Iterator[None]:
    """Marks the part of NCCL's log written meanwhile: it concerns groups with rank numbers of their
    own, not the group of all ranks."""
    log, record = nccl_log(run.folder, run.rank)
    with open(record, "a", encoding="ascii") as target:
        target.write("%d " % (os.path.getsize(log) if os.path.exists(log) else 0))
        target.flush()
        yield
        target.write("%d " % (os.path.getsize(log) if os.path.exists(log) else 0))


def read_nccl_log(folder: str, rank: int, limit: int = 4 << 20) -> str:
    """The end of a rank's NCCL log, without the parts that concern other groups."""
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
    """A binary file as base64, or None. A file that is too large is left out, because half a pickle
    cannot be read."""
    try:
        if os.path.getsize(path) > limit:
            return None
        with open(path, "rb") as source:
            return base64.b64encode(source.read()).decode("ascii")
    except OSError:
        return None
