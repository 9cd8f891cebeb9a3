"""Failed units of systemd: the request as a D-Bus peer reads it, its answer in both byte orders,
and every way in which the peer may misbehave."""

from __future__ import annotations

import os
import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_roots import copied, unread

from unhang_node.base.root import Root
from unhang_node.facts.parse.dbus import list_units_request, message_size, parse_units
from unhang_node.facts.sections.units import read_troubled_units

UNITS = [
    ("nvidia-fabricmanager.service", "failed", "failed"),
    ("data.mount", "failed", "failed"),
    ("dcgm.service", "activating", "auto-restart"),
]


def padded(data, to):
    return data + b"\0" * (-len(data) % to)


def reply(units, order="<", kind=2):
    """A message as systemd sends it, with header fields of odd length."""

    def text(value):
        return struct.pack(order + "I", len(value)) + value.encode() + b"\0"

    body = b""
    for name, active, sub in units:
        body = padded(body, 8)
        for value in (
            name,
            "A description, of some length",
            "loaded",
            active,
            sub,
            "",
            "/org/freedesktop/systemd1/unit/x",
        ):
            body = padded(body, 4) + text(value)
        body = padded(body, 4) + struct.pack(order + "I", 0) + text("")
        body = padded(body, 4) + text("/")
    body = struct.pack(order + "I", len(body)) + b"\0\0\0\0" + body
    fields = b"\x05\x01u\0" + struct.pack(order + "I", 1) + b"\x08\x01g\0\x0fa(ssssssouso)\0"
    head = struct.pack(
        order + "BBBBIII", ord("l" if order == "<" else "B"), kind, 1, 1, len(body), 7, len(fields)
    )
    return padded(head + fields, 8) + body


@pytest.fixture
def peer(tmp_path):
    """peer(*chunks): a socket's path at which a systemd sends these after the handshake; what it
    was sent is in peer.sent."""
    opened = []

    def start(*chunks, greeting=b"OK 0123456789abcdef\r\nAGREE_UNIX_FD\r\n"):
        path = str(tmp_path / "private")
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(path)
        server.listen(1)

        def serve():
            connection, _address = server.accept()
            start.sent = connection.recv(4096)
            connection.sendall(greeting)
            if greeting.startswith(b"OK"):
                start.sent += connection.recv(4096)
            for chunk in chunks:
                connection.sendall(chunk)
            connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        opened.append((server, thread))
        return path

    yield start
    for server, thread in opened:
        thread.join(5)
        server.close()


@pytest.mark.parametrize("order", ["<", ">"])
def test_an_answer_is_read_in_both_byte_orders(order):
    message = reply(UNITS, order)
    assert message_size(message[:16]) == len(message)
    assert parse_units(message) == UNITS
    assert parse_units(reply([], order)) == []


def test_the_request_is_one_that_a_peer_can_read():
    request = list_units_request(("failed", "auto-restart"))
    assert message_size(request[:16]) == len(request)
    body = request[-struct.unpack_from("<I", request, 4)[0] :]
    assert struct.unpack_from("<I", body)[0] == len(body) - 4
    assert body[4:] == b"\x06\0\0\0failed\0\0" + b"\x0c\0\0\0auto-restart\0"
    for part in (
        b"\x01\x01o\0\x19\0\0\0/org/freedesktop/systemd1\0",
        b"ListUnitsFiltered\0",
        b"\x08\x01g\0\x02as\0",
    ):
        assert request.index(part) % 8 == 0 if part[1:2] == b"\x01" else part in request


def test_failed_and_restarting_units_are_told(peer):
    message = reply(UNITS)
    path = peer(reply([], kind=4), message[:40], message[40:])
    assert read_troubled_units(Root(["/"]), path) == [
        {"name": "data.mount", "state": "failed"}, {"name": "dcgm.service", "state": "restarting"},
        {"name": "nvidia-fabricmanager.service", "state": "failed"},
    ]  # fmt: skip
    assert peer.sent.startswith(
        b"\0AUTH EXTERNAL "
        + str(os.geteuid()).encode().hex().encode()
        + b"\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\nl\x01\0\x01"
    )


@pytest.mark.parametrize(
    ("chunks", "problem"),
    [
        ([reply(UNITS)[:60]], "ended the connection"),
        ([reply(UNITS, kind=3)], "refused"),
        ([b"x" * 64], "this is not a message of D-Bus"),
        ([struct.pack("<BBBBIII", ord("l"), 2, 0, 1, 1 << 30, 1, 0)], "has 1073741840 bytes"),
        ([reply([], kind=4)] * 20, "no answer"),
    ],
)
def test_an_answer_of_another_form_is_an_error(peer, chunks, problem):
    with pytest.raises(ValueError, match=problem):
        read_troubled_units(Root(["/"]), peer(*chunks))


def test_a_user_whom_systemd_does_not_answer_is_denied(peer):
    with pytest.raises(PermissionError):
        read_troubled_units(Root(["/"]), peer(greeting=b"REJECTED EXTERNAL\r\n"))


def test_a_machine_without_systemd_and_a_recorded_one_have_no_answer(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_troubled_units(Root(["/"]), str(tmp_path / "none"))
    assert unread(copied("h200x8", tmp_path), "node")["troubled_units"]["status"] == "absent"


@given(st.binary(max_size=200), st.integers(0, 200))
def test_no_damage_to_an_answer_breaks_the_parser(noise, at):
    message = reply(UNITS)
    for damaged in (message[:at] + noise + message[at + len(noise) :], noise, message[:at]):
        try:
            rows = parse_units(damaged)
        except ValueError:
            continue
        assert rows is None or all(len(row) == 3 for row in rows)
