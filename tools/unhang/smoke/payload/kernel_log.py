"""Reads the kernel log's new lines."""

from __future__ import annotations

import contextlib
import os

from .roots import rooted


def open_kernel_log() -> int | None:
    """A descriptor that yields the lines from now on, or None where this is not permitted."""
    try:
        descriptor = os.open(rooted("/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(descriptor, 0, os.SEEK_END)
        return descriptor
    except OSError:
        return None


def new_kernel_lines(descriptor: int | None) -> list[str] | None:
    """The new lines, limited in number; None where the log may not be read.

    A record is `priority,number,time,flags;text`, followed by lines that begin with a blank and
    hold more for programs. https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg
    """
    if descriptor is None:
        return None
    lines: list[str] = []
    piece = b" "
    # EAGAIN: no more lines; EPIPE: the log's buffer was overwritten
    with contextlib.suppress(OSError):
        while len(lines) < 200 and piece:
            piece = os.read(descriptor, 8192)
            records = [
                line
                for line in piece.decode("utf-8", "replace").split("\n")
                if line and not line.startswith(" ")
            ]
            lines += [record.partition(";")[2][:500] for record in records]
    return lines[:200]
