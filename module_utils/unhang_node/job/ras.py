"""Asks NCCL's RAS about a running job, twice. RAS is a service of each process of the job and
answers for all of them (NCCL 2.24 and later, on by default).

The processes of a node share one port, so a connection may land on one that is stopped: its kernel
accepts, and nobody answers. A short request is answered at once by one that lives, so several short
tries find it. Any user may listen at that port: an answer counts only if the socket that listens
and the one that answered are among the descriptors of a process of the job. Source:
src/ras/client_support.cc of NCCL; captures of seven scenes in tests/fixtures/ras.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import time

from ..base.named_tuple import NamedTuple
from ..base.section import Absent, Denied, one_line, status_of_error
from ..facts.sections.reading import text_if_there
from ..facts.sections.users import read_users, user_name
from .finding import MORE, targets_of
from .namespaces import by_network, network_of
from .parse.process_state import parse_tcp
from .parse.ras import parse_json_form, parse_ras

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..base.context import Context
    from ..base.root import Root
    from ..base.section import SourcePiece
    from .parse.process_state import TcpSocket

DEFAULT_ADDRESS = "localhost:28028"
FIRST_WORD_S = 0.6  # an answer to the first request takes a hundredth of that
TRIES = 7
ANSWER_S = 4.0
# how long RAS waits for a process of the job before it reports it as missing; its own default is 5
LEG_S = 2
MOST_BYTES = 32 << 20
TABLE_BYTES = 64 << 20  # of all sockets of a network; those that listen come first
OFFERS_JSON = b"OK"


class Service(NamedTuple):
    """A place where RAS of the job may listen. address: host:port; ranks: those of one network;
    is_here: whether it is this process's own network."""

    address: str
    ranks: list[dict[str, Any]]
    is_here: bool

    def net(self) -> str:
        """Where the kernel lists the sockets of the network: by a rank, because older kernels show
        a process that changed its network those of the former."""
        return "/proc/self/net" if self.is_here else f"/proc/{self.ranks[0]['pid']}/net"


def read_ras(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section ras: looks [{address, at_s, answered_s, tries, version, form, communicators}],
    of the first address that answers about this job."""
    chosen, first = _first_answer(ctx)
    begun = time.monotonic()
    yield "ras", {"looks": [first]}, [], MORE
    wait_s = max(0.0, ctx.options["gap_s"] - (time.monotonic() - begun))
    ctx.mark("the time between two looks", wait_s + 1)
    time.sleep(wait_s)
    try:
        yield "ras", {"looks": [_look(ctx, chosen)]}, []
    except (OSError, ValueError) as problem:
        yield (
            "ras",
            {},
            [
                {
                    "field": "looks[1]",
                    "status": status_of_error(problem),
                    "reason": one_line(problem),
                }
            ],
        )


def services_of(root: Root, ranks: list[dict[str, Any]]) -> Iterator[Service]:
    """Where the ranks' RAS may listen: what NCCL_RAS_ADDR of a rank says, and the default, in each
    network that ranks have."""
    for is_here, rows in by_network(root, ranks):
        named = [row["settings"].get("NCCL_RAS_ADDR") or DEFAULT_ADDRESS for row in rows]
        for address in dict.fromkeys([*named, DEFAULT_ADDRESS]):
            yield Service(address=address, ranks=rows, is_here=is_here)


def _first_answer(ctx: Context) -> tuple[Service, dict[str, Any]]:
    ranks = ctx.options["ranks"]
    problem: Exception | None = None
    for service in services_of(ctx.root, ranks):
        try:
            return service, _look(ctx, service)
        except (OSError, ValueError, Absent) as found:
            problem = problem or found
    if all(row["settings"].get("NCCL_RAS_ENABLE") == "0" for row in ranks) and not isinstance(
        problem, Denied
    ):
        raise Absent("the job's environment has NCCL_RAS_ENABLE=0")
    raise problem or Absent("no rank")


def _look(ctx: Context, service: Service) -> dict[str, Any]:
    begun = time.monotonic()
    answer, tries = ask(ctx.root, service, ctx.mark)
    return {
        "address": service.address,
        "at_s": round(time.time(), 3),
        "answered_s": round(time.monotonic() - begun, 3),
        "tries": tries,
        **answer,
    }


def ask(
    root: Root, service: Service, mark: Callable[..., None], tries: int = TRIES
) -> tuple[dict[str, Any], int]:
    """(answer of parse_ras, tries) of the first process of the job that answers there. Raises
    Absent when nothing listens or the answer is about another job, Denied when a stranger listens
    or the network may not be entered, TimeoutError, OSError, ValueError."""
    port, first = service.address.rpartition(":")[2], service.ranks[0]
    if not (port.isdigit() and 0 < int(port) < 65536 and ":" in service.address):
        raise ValueError(f"NCCL_RAS_ADDR must be host:port, and is {service.address[:80]!r}")
    there = (
        contextlib.nullcontext() if service.is_here else network_of(first["pid"], first["started"])
    )
    with there:
        text, tries = _ask(root, service, int(port), mark, tries)
    answer = parse_ras(text)
    pids = {number for row in service.ranks for number in (row["pid"], row["own_pid"])}
    members = {
        row[2]
        for group in answer["communicators"]
        for row in (*group["members"], *group["missing"])
    }
    if members and not members & pids:
        raise Absent(
            f"RAS at {service.address} answers for another job: none of its {len(members)}"
            " processes is a rank of this one"
        )
    return answer, tries


def _ask(
    root: Root, service: Service, port: int, mark: Callable[..., None], tries: int
) -> tuple[str, int]:
    address = service.address
    mark(f"see who listens at port {port}")
    place = _own_listener(root, service, port)
    problem: OSError = TimeoutError(
        errno.ETIMEDOUT,
        f"{tries} connections to {address} were accepted and none was answered: is every rank"
        " stopped?",
    )
    for count in range(1, tries + 1):
        mark(f"ask RAS at {address}", FIRST_WORD_S + ANSWER_S + 2)
        try:
            answer = _ask_once(root, service, place)
        except ConnectionRefusedError:
            raise Absent(f"nothing listens at {address} any more") from None
        except socket.timeout as found:
            if str(found) == "late":
                raise TimeoutError(
                    errno.ETIMEDOUT,
                    f"RAS at {address} did not end its answer within {ANSWER_S:g} s",
                ) from None
            continue
        except (
            ConnectionError,
            Denied,
        ) as found:  # the processes of one user share the port, those of other jobs too
            problem = found
            continue
        return answer, count
    raise problem


def _own_listener(root: Root, service: Service, port: int) -> tuple[str, int]:
    """Where one of the processes listens on a port: what NCCL_RAS_ADDR names is a user's text, and
    is not asked. Raises Absent, Denied."""
    rows = [
        row
        for row in _sockets_at(root, service, port)
        if row.state == "LISTEN" and row.local.endswith(f":{port}")
    ]
    inodes = _inodes_of(root, service)
    for row in rows:
        if row.inode in inodes:
            host = row.local.rpartition(":")[0].strip("[]")
            return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port  # noqa: S104 -- who listens at all addresses is asked at localhost
    if not rows:
        raise Absent(
            f"nothing listens at port {port}: no communicator yet, NCCL before 2.24, or"
            " NCCL_RAS_ENABLE=0"
        )
    users = read_users(root)
    who = ", ".join(sorted({f"user {user_name(users, row.uid)}" for row in rows}))
    raise Denied(
        f"who listens at {rows[0].local} ({who}) is not a process of the job, or its descriptors"
        " cannot be seen; it was not asked"
    )


def _sockets_at(root: Root, service: Service, port: int) -> list[TcpSocket]:
    """The sockets of a network with this port at either end."""
    mark = f":{port:04X} "
    found: list[TcpSocket] = []
    for name in ("tcp", "tcp6"):
        table = text_if_there(root, f"{service.net()}/{name}", TABLE_BYTES)
        found += parse_tcp(line for line in table.splitlines()[1:] if mark in line)
    return found


def _inodes_of(root: Root, service: Service) -> set[str]:
    return {
        target[8:-1]
        for row in service.ranks
        for target in targets_of(root, row["pid"]).values()
        if target.startswith("socket:[")
    }


def _demand_own_end(root: Root, service: Service, link: socket.socket) -> None:
    """Whoever answered has the other end of the connection among its descriptors. Raises Denied
    when that is none of the processes."""
    (here, port), (there, its_port) = (
        (_plain(name[0]), name[1]) for name in (link.getsockname(), link.getpeername())
    )
    ends = [
        row
        for row in _sockets_at(root, service, port)
        if (row.local, row.remote) == (f"{there}:{its_port}", f"{here}:{port}")
    ]
    if not any(row.inode in _inodes_of(root, service) for row in ends):
        raise Denied(f"who answers at {there}:{its_port} is not a process of the job: ignored")


def _plain(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _ask_once(root: Root, service: Service, place: tuple[str, int]) -> str:
    """One answer. Raises Denied; socket.timeout: silent to the first request, or with "late" when
    an answer had begun."""
    with socket.create_connection(place, timeout=FIRST_WORD_S) as link:
        link.sendall(b"set format json\n")
        first = link.recv(4096)
        if not first:
            raise ConnectionResetError(
                errno.ECONNRESET, "the connection was closed before an answer"
            )
        _demand_own_end(root, service, link)
        link.sendall(b"timeout %d\nverbose status\n" % LEG_S)
        received, until, is_json = (
            bytearray(first),
            time.monotonic() + ANSWER_S,
            first.startswith(OFFERS_JSON),
        )
        while len(received) <= MOST_BYTES:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise socket.timeout("late")
            link.settimeout(left_s)
            try:
                piece = link.recv(1 << 18)
            except socket.timeout:
                raise socket.timeout("late") from None
            except (
                ConnectionError
            ):  # another service closes so after its word: what it said is the answer
                piece = b""
            received += piece
            if not piece or (is_json and piece.rstrip().endswith(b"}") and _is_whole(received)):
                return received.decode("utf-8", "replace")
    raise ValueError(f"RAS answered more than {MOST_BYTES} bytes")


def _is_whole(received: bytearray) -> bool:
    """Whether the JSON has ended: RAS closes the connection after it, but nothing says that it
    must."""
    if received.count(b"{") != received.count(b"}"):
        return False
    text = received.decode("utf-8", "replace")
    try:
        parse_json_form(text[text.find("{") :])
    except ValueError:
        return False
    return True
