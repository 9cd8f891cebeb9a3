"""The client of RAS before a real TCP server: one that answers as recorded, one that is slow,
wrong, endless, silent, or of another job."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from pathlib import Path

import pytest

from unhang_node.base.context import Context, no_mark
from unhang_node.base.root import Root
from unhang_node.base.section import Absent
from unhang_node.job import ras
from unhang_node.job.look import OPTIONS

CAPTURES = Path(__file__).parents[3] / "fixtures" / "ras"
RANK = {"rank": 0, "pid": 519, "own_pid": 519, "settings": {}}


def recorded(name: str) -> bytes:
    return (
        re.split(r"==== json\n", (CAPTURES / f"{name}.txt").read_text())[1]
        .partition("\n[0.")[0]
        .partition("OK\n")[2]
        .encode()
    )


def text_of(name: str) -> bytes:
    return (
        re.split(r"==== verbose status\n", (CAPTURES / f"{name}.txt").read_text())[1]
        .partition("\n[0.")[0]
        .encode()
        + b"\n"
    )


@contextlib.contextmanager
def service(answer):
    """answer(link, number): called for each connection, the first is 0."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        closing = threading.Event()

        def serve() -> None:
            number = 0
            while not closing.is_set():
                with contextlib.suppress(OSError):
                    link, _ = server.accept()
                    with link, contextlib.suppress(OSError):
                        answer(link, number)
                    number += 1

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            closing.set()
            with contextlib.suppress(OSError):
                socket.create_connection(server.getsockname(), 1).close()
            thread.join(5)


def as_nccl(content: bytes):
    """Answers as NCCL does: OK to each setting, then the status, then it closes."""

    def answer(link, _number):
        received = b""
        while b"status\n" not in received:
            part = link.recv(4096)
            if not part:  # the connection that ends the service
                return
            received += part
            if received.endswith(b"json\n"):
                link.sendall(b"OK\n")
        link.sendall(b"OK\n" + content)

    return answer


def context(address: str, pid: int = 519) -> Context:
    """This process is the rank, because it listens; NCCL calls it by another number, as in a
    container."""
    rank = {**RANK, "pid": os.getpid(), "own_pid": pid, "settings": {"NCCL_RAS_ADDR": address}}
    return Context(Root(), {**OPTIONS, "ranks": [rank], "gap_s": 0.05}, (), None)


def here(address: str) -> ras.Service:
    return ras.Service(address=address, ranks=[{**RANK, "pid": os.getpid()}], is_here=True)


def looks_of(ctx):
    return [look for _, fields, *_ in ras.read_ras(ctx) for look in fields.get("looks", [])]


def test_two_looks_of_a_recorded_job():
    with service(as_nccl(recorded("never-first"))) as address:
        found = looks_of(context(address))
    assert [look["communicators"][0]["counts"][1]["ops"] for look in found] == [
        {"AllReduce": 60}
    ] * 2


def test_an_older_nccl_answers_in_text():
    def answer(link, _number):
        link.recv(4096)
        link.sendall(b"ERROR: Unknown command set format json\n")
        link.recv(4096)
        link.sendall(b"OK\n" + text_of("never-first"))

    with service(answer) as address:
        found = looks_of(context(address))
    assert found[0]["form"] == "text"
    assert found[0]["communicators"][0]["counts"][0]["ops"] == {"AllReduce": 61}


def test_a_stopped_process_behind_the_port_is_passed_over(monkeypatch):
    monkeypatch.setattr(ras, "FIRST_WORD_S", 0.2)

    def answer(link, number):
        if number < 2:
            link.recv(1)  # its kernel accepts, and nobody answers
            link.recv(4096)
            link.recv(4096)
        else:
            as_nccl(recorded("never-first"))(link, number)

    with service(answer) as address:
        found, tries = ras.ask(Root(), here(address), no_mark)
    assert (tries, found["form"]) == (3, "json")


def test_every_process_stopped_is_a_timeout(monkeypatch):
    monkeypatch.setattr(ras, "FIRST_WORD_S", 0.05)

    def silent(link, _number):
        while link.recv(4096):
            pass

    with service(silent) as address, pytest.raises(TimeoutError, match="is every rank stopped"):
        ras.ask(Root(), here(address), no_mark, tries=3)


def test_an_answer_without_an_end_is_given_up(monkeypatch):
    monkeypatch.setattr(ras, "ANSWER_S", 0.3)

    def endless(link, _number):
        link.recv(4096)
        link.sendall(b"OK\n")
        while True:
            link.sendall(b'{"communicators": [')
            threading.Event().wait(0.02)

    with service(endless) as address, pytest.raises(TimeoutError, match="did not end its answer"):
        ras.ask(Root(), here(address), no_mark)


def test_an_answer_without_bounds_is_given_up(monkeypatch):
    monkeypatch.setattr(ras, "MOST_BYTES", 100_000)

    def flood(link, _number):
        link.recv(4096)
        while True:
            link.sendall(b"x" * 65536)

    with service(flood) as address, pytest.raises(ValueError, match="more than 100000 bytes"):
        ras.ask(Root(), here(address), no_mark)


def test_another_service_is_told_by_its_words():
    def web(link, _number):
        link.recv(4096)
        link.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        link.recv(4096)

    with service(web) as address, pytest.raises(ValueError, match=r"HTTP/1\.1 400"):
        looks_of(context(address))


def test_another_jobs_ras_is_not_taken():
    with (
        service(as_nccl(recorded("never-first"))) as address,
        pytest.raises(Absent, match="answers for another job"),
    ):
        looks_of(context(address, pid=4711))


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(Absent, match="nothing listens"):
        ras.ask(Root(), here(address), no_mark)


def test_an_address_that_is_none_is_named():
    with pytest.raises(ValueError, match="NCCL_RAS_ADDR must be host:port, and is 'nowhere'"):
        ras.ask(Root(), here("nowhere"), no_mark)


def test_a_service_that_goes_between_the_looks_costs_the_second_look():
    def once(link, number):
        if number == 0:
            as_nccl(recorded("never-first"))(link, number)

    with service(once) as address:
        pieces = list(ras.read_ras(context(address)))
    assert [len(fields.get("looks", [])) for _, fields, *_ in pieces] == [1, 0]
    assert pieces[1][2][0]["field"] == "looks[1]"
