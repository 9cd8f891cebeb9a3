"""The few D-Bus messages that list systemd's units (the D-Bus specification, "Message Protocol";
org.freedesktop.systemd1(5)). Bytes in, values out."""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

METHOD_RETURN, ERROR = 2, 3
HEADER_BYTES = 16
UNITS = 4096


def list_units_request(states: Sequence[str]) -> bytes:
    """A call of ListUnitsFiltered: the units that are in one of these load, active or sub
    states."""
    body = b"".join(_padded(_string(state), 4) for state in states[:-1]) + _string(states[-1])
    body = struct.pack("<I", len(body)) + body
    fields = b""
    for code, kind, value in (
        (1, "o", "/org/freedesktop/systemd1"),
        (2, "s", "org.freedesktop.systemd1.Manager"),
        (3, "s", "ListUnitsFiltered"),
        (6, "s", "org.freedesktop.systemd1"),
    ):
        # four bytes before the value: it is aligned
        fields = _padded(fields, 8) + bytes([code]) + _signature(kind) + _string(value)
    fields = _padded(fields, 8) + bytes([8]) + _signature("g") + _signature("as")
    return (
        _padded(struct.pack("<BBBBIII", ord("l"), 1, 0, 1, len(body), 1, len(fields)) + fields, 8)
        + body
    )


def message_size(header: bytes) -> int:
    """Size of a whole message in bytes, from its first HEADER_BYTES. Raises ValueError."""
    order = _order(header)
    body, _serial, fields = struct.unpack_from(order + "III", header, 4)
    return int(HEADER_BYTES + fields + -fields % 8 + body)


def parse_units(message: bytes) -> list[tuple[str, str, str]] | None:
    """[(name, active state, sub state)] of a reply to list_units_request; None if the message is no
    reply. Raises ValueError."""
    order, kind = _order(message), message[1]
    if kind == ERROR:
        raise ValueError("systemd refused to list its units")
    if kind != METHOD_RETURN:
        return None
    body_bytes, _serial, fields = struct.unpack_from(order + "III", message, 4)
    body = message[HEADER_BYTES + fields + -fields % 8 :][:body_bytes]
    try:
        end = 4 + struct.unpack_from(order + "I", body)[0]
        at = 8
        rows: list[tuple[str, str, str]] = []
        while at < min(end + 4, len(body)) and len(rows) < UNITS:
            texts, at = _texts(order, body, at + -at % 8, 7)
            at += -at % 4 + 4  # the job's number
            _job, at = _texts(order, body, at, 2)
            rows.append((texts[0], texts[3], texts[4]))
    except (struct.error, IndexError):
        raise ValueError("systemd's list of units ends in the middle") from None
    return rows


def _texts(order: str, body: bytes, at: int, count: int) -> tuple[list[str], int]:
    """(`count` consecutive strings, offset after them)."""
    found = []
    for _ in range(count):
        at += -at % 4
        size = struct.unpack_from(order + "I", body, at)[0]
        if at + 4 + size >= len(body):
            raise ValueError("systemd's list of units ends in the middle")
        found.append(body[at + 4 : at + 4 + size].decode("utf-8", "replace"))
        at += 4 + size + 1
    return found, at


def _order(message: bytes) -> str:
    """The byte order of a message as struct's format character. Raises ValueError."""
    order = {ord("l"): "<", ord("B"): ">"}.get(message[0]) if len(message) >= HEADER_BYTES else None
    if order is None:
        raise ValueError("this is not a message of D-Bus")
    return order


def _string(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode("ascii") + b"\0"


def _signature(text: str) -> bytes:
    return bytes([len(text)]) + text.encode("ascii") + b"\0"


def _padded(data: bytes, to: int) -> bytes:
    return data + b"\0" * (-len(data) % to)
