"""Systemd units that failed, or that systemd restarts repeatedly; only systemd itself knows this,
so it is queried. Part of section `node`.

One request over systemd's own socket, as `systemctl --failed` sends it: it changes nothing, starts
nothing and loads no unit.
"""

from __future__ import annotations

import os
import socket

from ...base.parse.values import clean
from ..parse.dbus import HEADER_BYTES, list_units_request, message_size, parse_units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...base.root import Root

SOCKET = "/run/systemd/private"  # only root may connect
SILENCE_S = 2.0
REPLY_BYTES, MESSAGES, ROWS = 1 << 20, 16, 64


def read_troubled_units(root: Root, path: str = SOCKET) -> list[dict[str, Any]]:
    """[{name, state}] with state failed or restarting, by name. Raises OSError, ValueError."""
    if not root.is_live or root.mounts:
        raise FileNotFoundError(2, "only the running systemd says it", SOCKET)
    root.watch("ask systemd for failed units")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(SILENCE_S)
        connection.connect(path)
        # As systemctl does: send the whole greeting at once, and the request only after its second
        # answer, which shows that systemd has read BEGIN. A request that arrives together with
        # BEGIN is not handled until more data arrives.
        connection.sendall(
            b"\0AUTH EXTERNAL "
            + str(os.geteuid()).encode("ascii").hex().encode("ascii")
            + b"\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n"
        )
        if not _received_line(connection).startswith(b"OK "):
            raise PermissionError(13, "systemd does not answer this user", SOCKET)
        _received_line(connection)
        connection.sendall(list_units_request(("failed", "auto-restart")))
        units = _received_units(connection)
    finally:
        connection.close()
    rows = [
        {"name": clean(name, 256), "state": "failed" if active == "failed" else "restarting"}
        for name, active, _sub in sorted(units)
    ]
    return rows[:ROWS]


def _received_line(connection: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\r\n") and len(line) < 512:
        piece = connection.recv(1)
        if not piece:
            break
        line += piece
    return line


def _received_units(connection: socket.socket) -> list[tuple[str, str, str]]:
    for _ in range(MESSAGES):
        header = _received(connection, HEADER_BYTES)
        size = message_size(header)
        if size > REPLY_BYTES:
            raise ValueError(f"systemd's answer has {size} bytes")
        units = parse_units(header + _received(connection, size - HEADER_BYTES))
        if units is not None:
            return units
    raise ValueError("systemd sends messages and no answer")


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ValueError("systemd ended the connection")
        data += piece
    return data
