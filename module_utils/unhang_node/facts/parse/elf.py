"""Reads facts out of ELF files (shared libraries, kernel modules) without loading them and without
reading them whole.

Of a libnccl.so of 430 MB almost all is device code; its banner is in a `.rodata` section of 128 KB,
which the section headers locate.
Format: elf(5). No size or offset in the file is trusted: each is bounded and checked against the
file's length.
"""

from __future__ import annotations

import os
import re
import struct

from ...base.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_SECTIONS = 4096
MAX_NAMES_BYTES = 1 << 20
MAX_NAME_BYTES = 256
MAX_SEARCHED_SECTIONS = 8
SEARCH_LIMIT_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20
OVERLAP_BYTES = 256
NOBITS = 8

NCCL_BANNER = re.compile(rb"NCCL version (\d{1,3}\.\d{1,3}[0-9A-Za-z.\-]{0,32})")
NCCL_BANNER_WITH_CUDA = re.compile(
    rb"NCCL version (\d{1,3}\.\d{1,3}[0-9A-Za-z.\-]{0,32})\+cuda(\d{1,3}(?:\.\d{1,3}){0,3})"
)

NET_INTERFACE = re.compile(rb"ncclNetPlugin_v([1-9][0-9]?)\0")


class Section(NamedTuple):
    """name; kind: sh_type; offset and size in bytes, inside the file."""

    name: str
    kind: int
    offset: int
    size: int


def read_sections(descriptor: int) -> list[Section]:
    """Sections of an open ELF file, 32 or 64 bit, either byte order. Raises ValueError if it is no
    ELF file, or a truncated one."""
    length = os.fstat(descriptor).st_size
    head = os.pread(descriptor, 64, 0)
    if head[:4] != b"\x7fELF" or len(head) < 52:
        raise ValueError("this is not an ELF file")
    wide = head[4] == 2
    order = ">" if head[5] == 2 else "<"
    if wide and len(head) < 64:
        raise ValueError("ELF header cut short")
    table = struct.unpack_from(order + ("Q" if wide else "I"), head, 40 if wide else 32)[0]
    entry_size, count, names_index = struct.unpack_from(order + "HHH", head, 58 if wide else 46)
    # sh_name sh_type sh_flags sh_addr sh_offset sh_size
    layout = struct.Struct(order + ("IIQQQQ" if wide else "IIIIII"))
    if (
        not count
        or count > MAX_SECTIONS
        or entry_size < layout.size
        or names_index >= count
        or table > length
    ):
        raise ValueError("ELF file without a usable section table")
    raw = os.pread(descriptor, entry_size * count, table)
    if len(raw) < entry_size * count:
        raise ValueError("ELF section table cut short")
    rows = [layout.unpack_from(raw, index * entry_size) for index in range(count)]
    place, names_size = rows[names_index][4:6]
    names = (
        os.pread(descriptor, min(names_size, MAX_NAMES_BYTES), place) if place <= length else b""
    )
    inside = [row for row in rows if row[1] != NOBITS and row[4] <= length]
    return [
        Section(
            name=_name_at(names, row[0]),
            kind=row[1],
            offset=row[4],
            size=min(row[5], length - row[4]),
        )
        for row in inside
    ]


def _name_at(names: bytes, offset: int) -> str:
    end = names.find(b"\0", offset, offset + MAX_NAME_BYTES)
    return names[offset : end if end >= 0 else offset].decode("ascii", "replace")


def section_bytes(
    descriptor: int, section: Section, limit: int = SEARCH_LIMIT_BYTES
) -> Iterator[bytes]:
    """Chunks of a section, each with the last OVERLAP_BYTES of the one before, so that a short text
    is never split between two chunks."""
    position, end = section.offset, section.offset + min(section.size, limit)
    tail = b""
    while position < end:
        piece = os.pread(descriptor, min(CHUNK_BYTES, end - position), position)
        if not piece:
            return
        yield tail + piece
        tail = (tail + piece)[-OVERLAP_BYTES:]
        position += len(piece)


def find_banner(descriptor: int, sections: Iterable[Section]) -> tuple[str, str | None] | None:
    """(version, cuda or None) of NCCL's banner "NCCL version 2.21.5+cuda12.4", or None when no
    read-only data section holds it.

    The banner with +cuda wins over other texts with the same beginning ("NCCL version mismatch", or
    a version alone).
    """
    bare = None
    searched = sorted(
        (each for each in sections if each.name.startswith(".rodata")), key=lambda each: each.name
    )[:MAX_SEARCHED_SECTIONS]
    for section in searched:
        for chunk in section_bytes(descriptor, section, SEARCH_LIMIT_BYTES // len(searched)):
            full = NCCL_BANNER_WITH_CUDA.search(chunk)
            if full:
                return full.group(1).decode("ascii"), full.group(2).decode("ascii")
            if bare is None:
                bare = NCCL_BANNER.search(chunk)
    return (bare.group(1).decode("ascii"), None) if bare else None


def find_net_interfaces(descriptor: int, sections: Iterable[Section]) -> list[int]:
    """Versions of NCCL's network interface that a plugin exports (ncclNetPlugin_v8 …), ascending;
    [] when it exports none."""
    found: set[int] = set()
    for section in sections:
        if section.name == ".dynstr":
            found.update(
                int(match.group(1))
                for match in NET_INTERFACE.finditer(
                    os.pread(descriptor, min(section.size, MAX_NAMES_BYTES), section.offset)
                )
            )
    return sorted(found)


def find_build_id(descriptor: int, sections: Iterable[Section]) -> str | None:
    """The GNU build id in hex, or None."""
    for section in sections:
        if section.name == ".note.gnu.build-id" and 16 < section.size <= 4096:
            return parse_build_id(os.pread(descriptor, section.size, section.offset))
    return None


def parse_build_id(note: bytes) -> str | None:
    """The build id in a note section: sizes of name and text, type 3, "GNU\\0", the id. None if the
    note is of another type."""
    for order in ("<", ">"):
        name_size, id_size, kind = struct.unpack_from(order + "III", note)
        if (
            kind == 3
            and name_size == 4
            and note[12:16] == b"GNU\0"
            and 0 < id_size <= len(note) - 16
        ):
            return note[16 : 16 + id_size].hex()
    return None


def find_modinfo(descriptor: int, sections: Iterable[Section]) -> dict[str, str]:
    """The name=value pairs of a kernel module's .modinfo, {} when it has none. Of repeated names
    the first counts."""
    pairs: dict[str, str] = {}
    for section in sections:
        if section.name == ".modinfo":
            for entry in os.pread(descriptor, min(section.size, 1 << 20), section.offset).split(
                b"\0"
            ):
                name, sign, value = entry.decode("utf-8", "replace").partition("=")
                if sign:
                    pairs.setdefault(name, value)
    return pairs
