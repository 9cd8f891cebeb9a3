"""PCI configuration space, as far as Access Control Services (ACS) and Address Translation Services
(ATS) need it.

PCI Express Base Specification, extended capabilities.
"""

from __future__ import annotations

import struct

EXTENDED_START = 0x100
ACS, ATS = 0x000D, 0x000F
ATS_ENABLE = 0x8000
# Bits of the ACS control word that route traffic between two devices below a switch up to the root
# complex.
SOURCE_VALIDATION, REQUEST_REDIRECT, COMPLETION_REDIRECT = 0x01, 0x04, 0x08
REDIRECTS = SOURCE_VALIDATION | REQUEST_REDIRECT | COMPLETION_REDIRECT


def find_extended_capability(config: bytes, wanted: int) -> int | None:
    """Offset of an extended capability in a configuration space of up to 4096 bytes, or None. A
    loop in the list ends the search."""
    offset, seen = EXTENDED_START, set()
    while EXTENDED_START <= offset <= len(config) - 4 and offset not in seen:
        seen.add(offset)
        head = struct.unpack_from("<I", config, offset)[0]
        if head in (0, 0xFFFFFFFF):
            return None
        if head & 0xFFFF == wanted:
            return offset
        offset = head >> 20 & 0xFFC
    return None


def parse_acs(config: bytes) -> tuple[bool, int | None]:
    """(capable, control word or None) of a bridge's configuration space. Raises PermissionError if
    `config` has only the 64 bytes that every user may read."""
    if len(config) <= 64:
        raise PermissionError(1, "only root reads PCI configuration beyond its first 64 bytes")
    offset = find_extended_capability(config, ACS)
    if offset is None or offset + 8 > len(config):
        return False, None
    return True, struct.unpack_from("<H", config, offset + 6)[0]


def parse_ats(config: bytes) -> bool:
    """True when a device translates addresses itself, False when it is off or not able to. Raises
    PermissionError as parse_acs does."""
    if len(config) <= 64:
        raise PermissionError(1, "only root reads PCI configuration beyond its first 64 bytes")
    offset = find_extended_capability(config, ATS)
    if offset is None or offset + 8 > len(config):
        return False
    return bool(struct.unpack_from("<H", config, offset + 6)[0] & ATS_ENABLE)


def is_redirecting(control: int) -> bool:
    """True when an ACS control word prevents direct traffic between devices."""
    return bool(control & REDIRECTS)
