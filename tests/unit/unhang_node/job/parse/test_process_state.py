"""Lines of /proc as kernels write them, and lines that are none."""

from __future__ import annotations

import pytest

from unhang_node.job.parse.process_state import (
    parse_interfaces,
    parse_io,
    parse_own_pid,
    parse_sockets,
    parse_stat,
    parse_switches,
    parse_tracer,
)

STAT = (
    "4711 (python (x) y) R 17 4711 4711 0 -1 4194560 100 0 0 0 700 30 5 6 20 0 9 0 123456 1000 200"
    " 18446744073709551615"
)
TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0 0 10 0
   1: 0500000A:A3F2 0900000A:733C 02 00000000:00000000 00:00000000 00000000     0        0 222 1 0 100 0 0 10 0
   2: 0500000A:A3F3 0900000A:733C 01 00000000:00000000 00:00000000 00000000     0        0 333 1 0 100 0 0 10 0
"""
TCP6 = """  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0000000000000000FFFF00000500000A:A3F2 0000000000000000FFFF00000900000A:733C 02 00000000:00000000 00:00000000 00000000     0        0 222 1
"""


def test_a_name_may_hold_parentheses():
    found = parse_stat(STAT)
    assert (found.command, found.state, found.parent, found.cpu_ticks, found.started) == (
        "python (x) y",
        "R",
        17,
        730,
        123456,
    )


@pytest.mark.parametrize(
    "line", ["", "4711", "4711 (a) R", "4711 (a) R x" + " 1" * 30, "(" + " 1" * 30]
)
def test_other_lines_are_none(line):
    assert parse_stat(line) is None


def test_sockets_of_a_process_by_inode():
    assert list(parse_sockets(TCP, {"222", "111"}).values()) == [
        {"state": "LISTEN", "local": "127.0.0.1:29500", "remote": "0.0.0.0:0"},
        {"state": "SYN_SENT", "local": "10.0.0.5:41970", "remote": "10.0.0.9:29500"},
    ]
    assert list(parse_sockets(TCP6, {"222"}).values()) == [
        {"state": "SYN_SENT", "local": "10.0.0.5:41970", "remote": "10.0.0.9:29500"}
    ]
    assert parse_sockets("a b\nx: y z\n" + "0: ZZ:1 ZZ:2 02 0 0 0 0 0 222 1\n", {"222"}) == {}


def test_fields_of_status_and_io():
    status = "Name:\tpython\nTracerPid:\t12\nNSpid:\t4711\t7\nvoluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t5\n"
    assert (parse_tracer(status), parse_own_pid(status), parse_switches(status)) == (12, 7, 15)
    assert (
        parse_tracer("TracerPid:\t0\n"),
        parse_own_pid(""),
        parse_switches("voluntary_ctxt_switches:\t10\n"),
    ) == (None, None, None)
    assert parse_io("rchar: 5\nread_bytes: 4096\ncancelled_write_bytes: 1\n") == {
        "rchar": 5,
        "read_bytes": 4096,
    }


def test_interfaces_count_bytes():
    text = "Inter-|\n face |\n    lo: 10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n bad\n"
    assert parse_interfaces(text) == {"lo": [10, 20]}
