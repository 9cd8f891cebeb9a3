"""Flight recordings and other files that one process writes for another."""

from __future__ import annotations

import base64
import contextlib
import os
import sys
from collections.abc import Callable

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


def read_tail(path: str, limit: int = 16000) -> str:
    """The end of a text file."""
    try:
        with open(path, "rb") as source:
            source.seek(max(0, os.path.getsize(path) - limit))
            return source.read().decode("utf-8", "replace")
    except OSError:
        return ""


def read_encoded(path: str) -> str | None:
    """A binary file as base64, or None. A file that is too large is left out, because half a pickle
    cannot be read."""
    try:
        if os.path.getsize(path) > 131072:
            return None
        with open(path, "rb") as source:
            return base64.b64encode(source.read()).decode("ascii")
    except OSError:
        return None
