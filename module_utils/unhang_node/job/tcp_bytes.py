"""How many bytes the TCP sockets of this network have carried, by the kernel's sock_diag, as
`ss -i` reads it: bytes that arrive move a job that waits for them, and no file shows them.

A kernel that would first have to load a module for the answer is not asked. Source:
linux/inet_diag.h, linux/tcp.h.
"""

from __future__ import annotations

import socket
import struct
import time

from ..base.named_tuple import NamedTuple
from ..facts.sections.reading import names_if_there
from .finding import targets_of
from .namespaces import by_network

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..base.root import Root

SOCK_DIAG, BY_FAMILY, DUMP_REQUEST = 4, 20, 0x301
DONE, ERROR = 3, 2
ESTABLISHED, LISTEN = 1 << 1, 1 << 10
INFO = 2  # the extension with struct tcp_info
HEADER, REQUEST = "=IHHII", "=BBBxI48x"
PORT_AT, PEER_AT, INODE_AT, ATTRIBUTES_AT = 16 + 4, 16 + 24, 16 + 68, 16 + 72
ACKED_AT = 120  # in tcp_info: tcpi_bytes_acked, after it tcpi_bytes_received
ANSWER_S = 1.0
MOST_SOCKETS = 65536


class Socket(NamedTuple):
    """Bytes that arrived, those that left and were acknowledged, and the address of the other
    end."""

    arrived: int
    left: int
    peer: str


NEW = Socket(arrived=0, left=0, peer="")


class Carried:
    """The sockets of some ranks as they were at the last look. every_s: between two looks, because
    their list is that of the whole node."""

    def __init__(self, root: Root, every_s: float = 0.0) -> None:
        self.root, self.every_s = root, every_s
        self.before: dict[str, Socket] = {}
        self.at_s: float | None = None
        self.is_there = root.is_live and _answers_without_a_module(root)

    def rates(
        self, ranks: list[dict[str, Any]], below: dict[int, list[int]]
    ) -> dict[int, dict[str, Any]]:
        """{rank's pid: {socket_bytes_s, arrived_bytes_s, arrived_from, arrived_below}}: bytes a
        second since the last call of that socket of it and of the processes below it which carried
        most, of that to which most arrived, from where, and whether the rank itself does not have
        it: nothing at the first, before every_s have passed, for ranks of another network, and
        where the kernel does not answer; then the other signs of work decide. One socket, because
        many with a heartbeat each carry nothing."""
        at_s = time.monotonic()
        if not self.is_there or (self.at_s is not None and at_s - self.at_s < self.every_s):
            return {}
        try:
            now = carried_bytes()
        except (OSError, struct.error):
            return {}
        before, then_s = self.before, self.at_s
        self.before, self.at_s = now, at_s
        if then_s is None:
            return {}
        here = [row for is_here, rows in by_network(self.root, ranks) if is_here for row in rows]
        return {
            row["pid"]: self._most(
                [row["pid"], *below.get(row["pid"], ())], before, max(0.1, at_s - then_s)
            )
            for row in here
        }

    def _most(self, pids: list[int], before: dict[str, Socket], seconds: float) -> dict[str, Any]:
        total, most, arrived_below = 0, NEW, False
        seen: set[str] = set()
        for pid in pids:
            links = targets_of(self.root, pid).values()
            own = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
            for one in (own & self.before.keys()) - seen:
                now, then = self.before[one], before.get(one, NEW)
                arrived = now.arrived - then.arrived
                total = max(total, arrived + now.left - then.left)
                if arrived > most.arrived:
                    most, arrived_below = now._replace(arrived=arrived), pid != pids[0]
            seen |= own
        return {
            "socket_bytes_s": round(total / seconds, 1),
            "arrived_bytes_s": round(most.arrived / seconds, 1),
            "arrived_from": most.peer,
            "arrived_below": arrived_below,
        }


def _answers_without_a_module(root: Root) -> bool:
    """Whether tcp_diag is loaded, or part of the kernel."""
    if "tcp_diag" in names_if_there(root, "/sys/module"):
        return True
    try:
        with open("/proc/kallsyms", "rb") as symbols:
            rest = b""
            for piece in iter(lambda: symbols.read(1 << 18), b""):
                if b" tcp_diag_dump" in rest + piece:
                    return True
                rest = piece[-64:]
    except OSError:
        pass
    return False


def carried_bytes() -> dict[str, Socket]:
    """{inode: Socket} of established TCP sockets. Raises OSError."""
    found: dict[str, Socket] = {}
    for message in _sockets(1 << (INFO - 1), ESTABLISHED):
        found[str(struct.unpack_from("=I", message, INODE_AT)[0])] = _carried(message)
        if len(found) >= MOST_SOCKETS:
            break
    return found


def listened_ports() -> set[int]:
    """The TCP ports at which somebody listens in this network. Unlike the tables in /proc/net, for
    which the kernel walks through all its sockets, this takes no time. Raises OSError."""
    return {struct.unpack_from("!H", message, PORT_AT)[0] for message in _sockets(0, LISTEN)}


def _sockets(extensions: int, states: int) -> Iterator[bytes]:
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, SOCK_DIAG
        ) as asked:
            asked.settimeout(ANSWER_S)
            request = struct.pack(REQUEST, family, socket.IPPROTO_TCP, extensions, states)
            head = struct.pack(HEADER, 16 + len(request), BY_FAMILY, DUMP_REQUEST, 1, 0)
            asked.send(head + request)
            yield from _messages(asked)


def _messages(asked: socket.socket) -> Iterator[bytes]:
    while True:
        answer, at = asked.recv(1 << 17), 0
        while at + 16 <= len(answer):
            length, kind, *_ = struct.unpack_from(HEADER, answer, at)
            if kind == DONE:
                return
            if kind == ERROR or length < 16:
                raise OSError(-struct.unpack_from("=i", answer, at + 16)[0], "sock_diag")
            yield answer[at : at + length]
            at += (length + 3) & ~3


def _carried(message: bytes) -> Socket:
    """0 bytes where the kernel is too old to count."""
    family, at = message[16], ATTRIBUTES_AT
    size = 4 if family == socket.AF_INET else 16
    peer = socket.inet_ntop(family, message[PEER_AT : PEER_AT + size])
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if kind == INFO and length >= 4 + ACKED_AT + 16:
            left, arrived = struct.unpack_from("=QQ", message, at + 4 + ACKED_AT)
            return Socket(arrived=arrived, left=left, peer=peer)
        at += max(4, (length + 3) & ~3)
    return Socket(arrived=0, left=0, peer=peer)
