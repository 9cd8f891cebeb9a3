"""Writes what a command shows to standard output or to a file that the user names."""

from __future__ import annotations

import sys
from pathlib import Path

from unhang.core.run.whole_files import write_named


def deliver(text: str, out: str) -> None:
    """Writes `text` to standard output (`-`) or, atomically, to a file."""
    if out == "-":
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
        return
    write_named(Path(out), text)
