"""What /proc says of a process that runs: state, parent, start, processor time, I/O, and TCP
sockets. Values in, values out."""

from __future__ import annotations

import re
import socket
import struct

from ...base.named_tuple import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

_NUMBER = re.compile(r"^(\w+):\s+(\d{1,19})$", re.MULTILINE)
IO_FIELDS = ("read_bytes", "write_bytes", "rchar", "wchar", "syscr", "syscw")
TCP_STATES = {"01": "ESTABLISHED", "02": "SYN_SENT", "03": "SYN_RECV", "0A": "LISTEN"}


class Stat(NamedTuple):
    """One line of /proc/<pid>/stat. started: clock ticks after boot, which with the pid names a
    process for as long as the machine runs. waited_ticks: processor time of children that ended and
    were waited for."""

    command: str
    state: str
    parent: int
    cpu_ticks: int
    started: int
    waited_ticks: int = 0


def parse_stat(line: str) -> Stat | None:
    """None for anything but such a line. The name may hold spaces and parentheses."""
    head, _, tail = line.rpartition(")")
    fields = tail.split()
    if (
        len(fields) < 20
        or "(" not in head
        or not all(fields[at].isdigit() for at in (1, 11, 12, 13, 14, 19))
    ):
        return None
    ticks = int(fields[11]) + int(fields[12])
    return Stat(
        command=head.partition("(")[2][:64],
        state=fields[0][:1],
        parent=int(fields[1]),
        cpu_ticks=ticks,
        started=int(fields[19]),
        waited_ticks=int(fields[13]) + int(fields[14]),
    )


def parse_io(text: str) -> dict[str, int]:
    """IO_FIELDS of /proc/<pid>/io, as far as they are there."""
    return {name: int(value) for name, value in _NUMBER.findall(text) if name in IO_FIELDS}


def parse_tracer(status: str) -> int | None:
    """The process that traces this one (a debugger), None without one."""
    found = re.search(r"^TracerPid:\s+(\d{1,10})$", status, re.MULTILINE)
    return int(found.group(1)) or None if found else None


def parse_switches(status: str) -> int | None:
    """How often a thread was switched, by itself or not: who waited all the time between two looks
    has the same number in both. None if it is not there."""
    found = re.findall(r"^(?:non)?voluntary_ctxt_switches:\s+(\d{1,19})$", status, re.MULTILINE)
    return sum(map(int, found)) if len(found) == 2 else None


def parse_own_pid(status: str) -> int | None:
    """The process id inside the innermost pid namespace (NSpid's last), as NCCL in a container
    reports it."""
    found = re.search(r"^NSpid:((?:\s+\d{1,10})+)$", status, re.MULTILINE)
    return int(found.group(1).split()[-1]) if found else None


class TcpSocket(NamedTuple):
    """One row of /proc/<pid>/net/tcp or tcp6. inode: "0" for a connection that no process has
    accepted."""

    state: str
    local: str
    remote: str
    uid: int
    inode: str


def parse_tcp(lines: Iterable[str]) -> Iterator[TcpSocket]:
    """The sockets of /proc/<pid>/net/tcp or tcp6 in a state of TCP_STATES."""
    for fields in map(str.split, lines):
        if len(fields) > 9 and fields[3] in TCP_STATES and fields[7].isdigit():
            local, remote = _address(fields[1]), _address(fields[2])
            if local and remote:
                yield TcpSocket(
                    state=TCP_STATES[fields[3]],
                    local=local,
                    remote=remote,
                    uid=int(fields[7]),
                    inode=fields[9],
                )


def parse_sockets(table: str, inodes: AbstractSet[str]) -> dict[str, dict[str, str]]:
    """{inode: {state, local, remote}} of the sockets of /proc/<pid>/net/tcp or tcp6 with one of
    these inodes."""
    lines = (line for line in table.splitlines()[1:] if not inodes.isdisjoint(line.split()[9:10]))
    return {
        row.inode: {"state": row.state, "local": row.local, "remote": row.remote}
        for row in parse_tcp(lines)
    }


def _address(text: str) -> str | None:
    """10.0.0.1:29500 of 0100000A:733C."""
    host, _, port = text.partition(":")
    try:
        packed = b"".join(
            struct.pack("=I", int(host[at : at + 8], 16)) for at in range(0, len(host), 8)
        )
        if len(packed) == 16 and packed[:12] == bytes(10) + b"\xff\xff":
            packed = packed[12:]
        name = socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)
        return f"{name}:{int(port, 16)}" if len(packed) == 4 else f"[{name}]:{int(port, 16)}"
    except (ValueError, OSError, struct.error):
        return None


def parse_interfaces(text: str) -> dict[str, list[int]]:
    """{interface: [bytes received, bytes sent]} of /proc/net/dev."""
    found = {}
    for line in text.splitlines()[2:]:
        name, colon, numbers = line.partition(":")
        fields = numbers.split()
        if colon and len(fields) >= 9 and fields[0].isdigit() and fields[8].isdigit():
            found[name.strip()[:32]] = [int(fields[0]), int(fields[8])]
    return found
