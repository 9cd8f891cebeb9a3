"""The kernel log's new lines."""

from __future__ import annotations

import contextlib
import os


def open_kernel_log():
    """A descriptor that yields the lines from now on, or None where that is not allowed."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(descriptor, 0, os.SEEK_END)
        return descriptor
    except OSError:
        return None


def new_kernel_lines(descriptor, most=200):
    """The lines that came since, bounded; None where the log may not be read."""
    if descriptor is None:
        return None
    lines = []
    with contextlib.suppress(OSError):
        while len(lines) < most:
            lines.append(os.read(descriptor, 8192).decode("utf-8", "replace").partition(";")[2].split("\n")[0][:500])
    return lines
