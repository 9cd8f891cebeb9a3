"""Writes a file in one piece: whoever reads it finds all of it, or the earlier one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

# the group that may read the runs and the history, at sites that share them
GROUP_ENV = "UNHANG_GROUP"


def write_named(path: Path, text: str) -> None:
    """The same as write_atomically for a file that the user named, with the mode that his umask
    gives. Raises OSError."""
    umask = os.umask(0o077)
    os.umask(umask)
    write_atomically(path, text, 0o666 & ~umask)


def write_atomically(path: Path, text: str, mode: int | None = None) -> None:
    """Replaces a file atomically; it holds host names, users and processes, so by default only the
    user may read it, and the group of UNHANG_GROUP.

    Lone surrogates, which UTF-8 cannot encode, become "?". Raises OSError that names the file.
    """
    if mode is None:
        mode = 0o640 if os.environ.get(GROUP_ENV) else 0o600
    written = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
        written = Path(name)
        os.close(handle)
        written.write_bytes(text.encode("utf-8", "replace"))
        written.chmod(mode)
        written.replace(path)
    except BaseException as problem:
        if written:
            written.unlink(missing_ok=True)
        if isinstance(problem, OSError) and problem.errno:
            # not a name that nobody has given, and a full disk names no file by itself
            raise OSError(problem.errno, problem.strerror, str(path)) from None
        raise
