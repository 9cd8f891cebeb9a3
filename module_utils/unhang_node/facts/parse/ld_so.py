"""The run-time linker's configuration: /etc/ld.so.cache (binary) and /etc/ld.so.conf.

Formats: glibc's sysdeps/generic/dl-cache.h (as documented there: magic, count, string length; then
entries of 24 bytes; then strings) and ldconfig(8).
"""

from __future__ import annotations

import re
import struct

MAGIC = b"glibc-ld.so.cache1.1"
OLD_MAGIC = b"ld.so-1.7.0"
HEADER_BYTES = 48
ENTRY_BYTES = 24
MAX_ENTRIES = 200000
CACHE_LIMIT_BYTES = 16 << 20
WIDE_FLAGS = {
    0x0300: "x86_64",
    0x0A00: "aarch64",
    0x0500: "ppc64le",
    0x0400: "s390x",
    0x1000: "riscv64",
}


def parse_cache(content: bytes, prefixes: tuple[str, ...]) -> list[tuple[str, str]]:
    """[(soname, path)] of the 64-bit libraries in a ld.so.cache whose name begins with one of
    `prefixes`, in the linker's order of choice.

    Raises ValueError if it is no cache of glibc's new format (2.2 and later), or a truncated one.
    """
    start = 0 if content.startswith(MAGIC) else _new_cache_after_old(content)
    if start < 0:
        raise ValueError("no ld.so.cache of glibc's format")
    order = ">" if len(content) > start + 28 and content[start + 28] & 3 == 3 else "<"
    if len(content) < start + HEADER_BYTES:
        raise ValueError("ld.so.cache cut short")
    count = struct.unpack_from(order + "I", content, start + len(MAGIC))[0]
    entries_end = start + HEADER_BYTES + count * ENTRY_BYTES
    if count > MAX_ENTRIES or entries_end > len(content):
        raise ValueError("ld.so.cache cut short")
    wanted = tuple(prefix.encode("ascii") for prefix in prefixes)
    rows = []
    for flags, key, value, _os, _hwcap in struct.iter_unpack(
        order + "iIIIQ", content[start + HEADER_BYTES : entries_end]
    ):
        if content.startswith(wanted, start + key) and (flags & 0xFF00) in WIDE_FLAGS:
            rows.append((_text_at(content, start + key), _text_at(content, start + value)))
    return rows


def _new_cache_after_old(content: bytes) -> int:
    """Offset of the new cache behind an old one: 12 bytes of magic, a count, 12 bytes for each
    entry, then aligned to 8."""
    if not content.startswith(OLD_MAGIC):
        return -1
    return content.find(MAGIC)


def _text_at(content: bytes, offset: int) -> str:
    end = content.find(b"\0", offset, offset + 4096)
    return content[offset : end if end >= 0 else offset].decode("utf-8", "replace")


def parse_conf(text: str) -> list[tuple[str, str]]:
    """(folders, include patterns) of one ld.so.conf, in the order of the file as
    [("folder"|"include", text)]."""
    rows: list[tuple[str, str]] = []
    for line in text.splitlines():
        entry = line.split("#")[0].strip()
        if not entry:
            continue
        kind, _, rest = entry.partition(" ")
        if kind == "include":
            rows.extend(("include", pattern) for pattern in rest.split())
        elif kind != "hwcap":
            rows.extend(
                ("folder", folder.split("=")[0].rstrip("/") or "/")
                for folder in re.split(r"[\s,:]+", entry)
                if folder
            )
    return rows
