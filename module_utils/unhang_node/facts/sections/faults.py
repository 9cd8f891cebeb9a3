"""Section `faults`: faults since boot, from the kernel log."""

from __future__ import annotations

import os
import time

from ...base.parse.values import integer_or_none
from ...base.section import Absent
from ..parse.gpu_resets import parse_gpu_resets, without_settled
from ..parse.kernel_log import find_faults

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root
    from ...base.section import Unread

LOG_LIMIT_BYTES = 16 * 1024 * 1024
RECORD_BYTES = 16384  # more than the longest record of /dev/kmsg
KMSG = "/dev/kmsg"
RESETS = "/var/lib/unhang/gpu_resets.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def read_faults(root: Root, unread: Unread, kernel_log: str | None = None) -> dict[str, Any]:
    """The section's fields, except probe. kernel_log: a file on this machine in place of the
    kernel's own log. Raises OSError, Absent.

    "complete" is false when the log no longer reaches back to the boot: a fault that is not in the
    log may have happened then. An Xid before the last reset of its GPU by unhang is left out.
    """
    resets, boot_id = read_resets(root, unread)
    done = resets and [_with_age(row) for row in resets]
    try:
        log, source, whole = _read_log(root, kernel_log)
    except (PermissionError, Absent) as problem:
        if not resets:
            raise
        # what was reset is readable for everybody, and decides what is done next
        unread.of_error("events", problem)
        return {"events": None, "resets": done}
    found = find_faults(log, read_boot_time(root))
    if found["cut"]:
        unread.add("events", "error", found["cut"])
    return {
        "source": source,
        "lines_read": found["lines_read"],
        "complete": found["complete"] and whole,
        "events": without_settled(found["events"], resets or [], boot_id),
        "resets": done,
    }


def _read_log(root: Root, kernel_log: str | None) -> tuple[bytes, str, bool]:
    """(log, source, whether nothing was overwritten). Raises OSError, ValueError, Absent."""
    if not kernel_log:
        return read_kmsg(root)
    root.watch("read " + kernel_log)
    return read_tail(kernel_log), "file", True


def _with_age(row: dict[str, Any]) -> dict[str, Any]:
    """A row of parse_gpu_resets as a fact."""
    kept = {name: row[name] for name in ("uuid", "pci_address", "verb", "because")}
    return dict(kept, age_s=max(0, round(time.time() - row["at"])))


def read_resets(root: Root, unread: Unread) -> tuple[list[dict[str, Any]] | None, str | None]:
    """(rows of parse_gpu_resets, None if they could not be read; this boot's id, None likewise)."""
    try:
        text = root.text(RESETS, 1 << 20)
    except (FileNotFoundError, NotADirectoryError):
        return [], None
    except OSError as problem:
        unread.of_error("resets", problem)
        return None, None
    return parse_gpu_resets(text), unread.attempt("resets", root.line, BOOT_ID)


def read_tail(path: str) -> bytes:
    """The last LOG_LIMIT_BYTES of a regular file. Raises OSError; ValueError for anything but a
    regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not os.path.isfile(path):
            raise ValueError(f"{path} is not a regular file")
        os.lseek(descriptor, max(0, status.st_size - LOG_LIMIT_BYTES), os.SEEK_SET)
        return read_pieces(descriptor, 1 << 20)[0]
    finally:
        os.close(descriptor)


def read_kmsg(root: Root) -> tuple[bytes, str, bool]:
    """(log, "kmsg", True when no record was overwritten meanwhile) of the kernel's ring buffer, or
    of the file that replaces it in a recorded tree.

    One read gives one record, without waiting for the next. Raises PermissionError where
    kernel.dmesg_restrict keeps it from this user, Absent.
    """
    try:
        place = root.place(KMSG)
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise Absent(
            "no " + KMSG + ", and no kernel_log file was given: containers have none"
        ) from None
    try:
        log, whole = read_pieces(descriptor, RECORD_BYTES)
    finally:
        os.close(descriptor)
    return log, "kmsg", whole


def read_pieces(descriptor: int, size: int) -> tuple[bytes, bool]:
    """(everything up to LOG_LIMIT_BYTES, False when records were lost on the way)."""
    pieces, remaining_bytes, whole = [], LOG_LIMIT_BYTES, True
    while remaining_bytes > 0:
        try:
            piece = os.read(descriptor, size)
        except BlockingIOError:
            break
        except BrokenPipeError:
            # the kernel overwrote the record before it was read; the next read continues after it
            whole = False
            continue
        if not piece:
            break
        pieces.append(piece)
        remaining_bytes -= len(piece)
    return b"".join(pieces), whole


def read_boot_time(root: Root) -> float | None:
    """Seconds since 1970 at boot, by /proc/stat, or None."""
    try:
        text = root.text("/proc/stat", 1 << 20)
    except (OSError, ValueError):
        return None
    at = text.find("\nbtime ")
    return integer_or_none(text[at + 7 : at + 40].split("\n")[0]) if at >= 0 else None
