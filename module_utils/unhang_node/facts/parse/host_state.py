"""Parses the kernel's switches and /etc/hosts."""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMES, ADDRESSES = 4096, 16


def parse_choice(text: str) -> str | None:
    """The value in brackets of a sysfs switch ("always [madvise] never"), or the only word of a
    file without brackets; None for anything else."""
    words = text.split()
    marked = [
        word[1:-1]
        for word in words
        if word.startswith("[") and word.endswith("]") and len(word) > 2
    ]
    if len(marked) == 1:
        return marked[0][:64]
    return words[0][:64] if len(words) == 1 and words[0][0] != "[" else None


def parse_host_addresses(text: str, hostname: str) -> list[str]:
    """Addresses that /etc/hosts gives a name, short or with its domain, in the order of the
    file."""
    wanted = {hostname.lower(), hostname.lower().partition(".")[0]}
    found: list[str] = []
    for line in text.splitlines()[:NAMES]:
        words = line.partition("#")[0].split()
        if words and words[0] not in found and wanted & {word.lower() for word in words[1:]}:
            found.append(words[0][:64])
    return found[:ADDRESSES]


STA_UNSYNC = 0x40


def parse_timex(answer: bytes) -> dict[str, Any]:
    """{kernel_in_step, max_error_ms} of the kernel's struct timex on a 64-bit machine
    (include/uapi/linux/timex.h)."""
    _modes, _offset, _frequency, max_error_us, _estimate, status = struct.unpack_from(
        "@Illlli", answer
    )
    return {"kernel_in_step": not status & STA_UNSYNC, "max_error_ms": round(max_error_us / 1000)}
