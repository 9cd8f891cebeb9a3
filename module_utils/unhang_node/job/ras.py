"""Asks NCCL's RAS about a running job, twice. RAS is a service of each process of the job and answers for all of them (NCCL 2.24 and later, on by default).

The processes of a node share one port, so a connection may land on one that is stopped: its kernel accepts, and nobody answers. A short request is answered
at once by one that lives, so several short tries find it. Source: src/ras/client_support.cc of NCCL; captures of seven scenes in tests/fixtures/ras.
"""

from __future__ import annotations

import errno
import socket
import time

from ..base.section import Absent, one_line, status_of_error
from .containers import has_own_network
from .finding import MORE
from .parse.ras import parse_json_form, parse_ras

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..base.context import Context
    from ..base.section import SourcePiece

DEFAULT_ADDRESS = "localhost:28028"
FIRST_WORD_S = 0.6  # an answer to the first request takes a hundredth of that
TRIES = 7
ANSWER_S = 4.0
LEG_S = 2  # how long RAS waits for a process of the job before it reports it as missing; its own default is 5
MOST_BYTES = 32 << 20
OFFERS_JSON = b"OK"


def read_ras(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section ras: looks [{address, at_s, answered_s, tries, version, form, communicators}], of the first address that answers about this job."""
    if all(has_own_network(ctx.root, row["pid"]) for row in ctx.options["ranks"]):
        raise Absent("the ranks have a network of their own, and RAS listens at its localhost; run unhang-inspect.pyz in the container")
    addresses = ras_addresses(ctx.options["ranks"])
    pids = {number for row in ctx.options["ranks"] for number in (row["pid"], row["own_pid"])}
    chosen, first = _first_answer(ctx, addresses, pids)
    begun = time.monotonic()
    yield "ras", {"looks": [first]}, [], MORE
    wait_s = max(0.0, ctx.options["gap_s"] - (time.monotonic() - begun))
    ctx.mark("the time between two looks", wait_s + 1)
    time.sleep(wait_s)
    try:
        yield "ras", {"looks": [_look(ctx, chosen, pids)]}, []
    except (OSError, ValueError) as problem:
        yield "ras", {}, [{"field": "looks[1]", "status": status_of_error(problem), "reason": one_line(problem)}]


def ras_addresses(ranks: list[dict[str, Any]]) -> list[str]:
    """Where the ranks' RAS may listen: what NCCL_RAS_ADDR of a rank says, and the default."""
    named = [row["settings"].get("NCCL_RAS_ADDR") or DEFAULT_ADDRESS for row in ranks]
    return list(dict.fromkeys([*named, DEFAULT_ADDRESS]))


def _first_answer(ctx: Context, addresses: list[str], pids: set[int]) -> tuple[str, dict[str, Any]]:
    problem: Exception | None = None
    for address in addresses:
        try:
            return address, _look(ctx, address, pids)
        except (OSError, ValueError, Absent) as found:
            problem = problem or found
    if all(row["settings"].get("NCCL_RAS_ENABLE") == "0" for row in ctx.options["ranks"]):
        raise Absent("NCCL_RAS_ENABLE=0 in the job's environment")
    raise problem or Absent("no rank")


def _look(ctx: Context, address: str, pids: set[int]) -> dict[str, Any]:
    begun = time.monotonic()
    text, tries = ask(address, ctx.mark)
    answer = parse_ras(text)
    members = {row[2] for one in answer["communicators"] for row in (*one["members"], *one["missing"])}
    if members and not members & pids:
        raise Absent(f"RAS at {address} answers for another job: none of its {len(members)} processes is a rank of this one")
    return {"address": address, "at_s": round(time.time(), 3), "answered_s": round(time.monotonic() - begun, 3), "tries": tries, **answer}


def ask(address: str, mark: Callable[..., None], tries: int = TRIES) -> tuple[str, int]:
    """(answer, tries) of the first process that answers. Raises Absent when nothing listens, TimeoutError, OSError, ValueError."""
    host, _, port = address.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"NCCL_RAS_ADDR: expected host:port, found {address[:80]!r}")
    problem: OSError = TimeoutError(errno.ETIMEDOUT, f"{tries} connections to {address} were accepted and none was answered: is every rank stopped?")
    for count in range(1, tries + 1):
        mark(f"ask RAS at {address}", FIRST_WORD_S + ANSWER_S + 2)
        try:
            answer = _ask_once((host.strip("[]") or "localhost", int(port)))
        except ConnectionRefusedError:
            raise Absent(f"nothing listens at {address}: no communicator yet, NCCL before 2.24, or NCCL_RAS_ENABLE=0") from None
        except socket.timeout as found:
            if str(found) == "late":
                raise TimeoutError(errno.ETIMEDOUT, f"RAS at {address} did not end its answer within {ANSWER_S:g} s") from None
            continue
        except ConnectionError as found:
            problem = found
            continue
        return answer, count
    raise problem


def _ask_once(place: tuple[str, int]) -> str:
    """One answer. Raises socket.timeout: silent to the first request, or with "late" when an answer had begun."""
    with socket.create_connection(place, timeout=FIRST_WORD_S) as link:
        link.sendall(b"set format json\n")
        first = link.recv(4096)
        if not first:
            raise ConnectionResetError(errno.ECONNRESET, "the connection was closed before an answer")
        link.sendall(b"timeout %d\nverbose status\n" % LEG_S)
        received, until, is_json = bytearray(first), time.monotonic() + ANSWER_S, first.startswith(OFFERS_JSON)
        while len(received) <= MOST_BYTES:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise socket.timeout("late")
            link.settimeout(left_s)
            try:
                piece = link.recv(1 << 18)
            except socket.timeout:
                raise socket.timeout("late") from None
            except ConnectionError:  # another service closes so after its word: what it said is the answer
                piece = b""
            received += piece
            if not piece or (is_json and piece.rstrip().endswith(b"}") and _is_whole(received)):
                return received.decode("utf-8", "replace")
    raise ValueError(f"RAS answered more than {MOST_BYTES} bytes")


def _is_whole(received: bytearray) -> bool:
    """Whether the JSON has ended: RAS closes the connection after it, but nothing says that it must."""
    if received.count(b"{") != received.count(b"}"):
        return False
    text = received.decode("utf-8", "replace")
    try:
        parse_json_form(text[text.find("{") :])
    except ValueError:
        return False
    return True
