"""Children that stall, crash, flood or refuse to die cost their own sections only."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from source_runs import forget_others, good, no_children_left, run, stalls

from unhang_node.base.section import Absent, read_section


def crashes(ctx):
    yield "gpus", {"count": 8}, []
    ctx.mark("nvmlDeviceGetName(0)")
    os.kill(os.getpid(), signal.SIGSEGV)


def exits(ctx):
    ctx.mark("nvmlInitWithFlags")
    os._exit(3)
    yield


def floods(ctx):
    ctx.mark("flood")
    while True:
        yield "gpus", {"devices": ["x" * 100000]}, []


def babbles(ctx):
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:  # of what the caller had open, a child holds the pipe of its answer alone
            with contextlib.suppress(OSError):
                os.write(int(name), b"no json\n")
    time.sleep(3600)
    yield


def raises(error):
    def read(ctx):
        yield "node", {"hostname": "gpu001"}, []
        raise error

    return read


@pytest.fixture(autouse=True)
def _others():
    forget_others()


def test_pieces_come_in_order_with_their_times():
    def read(ctx):
        yield "node", {"hostname": "a"}, []
        yield "kernel", {"release": "b"}, [{"field": "taints", "status": "denied", "reason": "no"}]

    (answer,) = run(read)
    assert (answer.status, answer.error) == ("ok", None)
    assert [(piece.section, piece.fields) for piece in answer.pieces] == [
        ("node", {"hostname": "a"}),
        ("kernel", {"release": "b"}),
    ]
    assert answer.pieces[1].unread == [{"field": "taints", "status": "denied", "reason": "no"}]
    assert answer.pieces[0].duration_ms >= 0


def test_a_crash_in_the_driver_library_names_signal_and_call():
    crashed, healthy = run(crashes, good)
    assert (crashed.status, crashed.error) == ("error", "killed by SIGSEGV in nvmlDeviceGetName(0)")
    assert [piece.fields for piece in crashed.pieces] == [{"count": 8}]
    assert healthy.status == "ok"


def test_a_child_that_just_ends_is_an_error():
    (answer,) = run(exits)
    assert answer.status == "error"
    assert "nvmlInitWithFlags" in answer.error


def test_a_flood_is_cut_off():
    flooding, healthy = run(floods, good)
    assert flooding.status == "error"
    assert "more than" in flooding.error
    assert healthy.status == "ok"
    no_children_left()


def test_an_answer_that_is_no_json_is_an_error():
    (answer,) = run(babbles)
    assert answer.status == "error"
    assert "not understood" in answer.error


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (Absent("no libnvidia-ml.so.1"), "absent", "no libnvidia-ml.so.1"),
        (PermissionError(13, "Permission denied", "/dev/nvidia0"), "denied", "PermissionError"),
        (OSError(116, "Stale file handle"), "timeout", "Stale file handle"),
        (ValueError("bad\x1b[31m line\n"), "error", "ValueError: bad [31m line"),
        (MemoryError(), "error", "MemoryError"),
        (RecursionError("deep"), "error", "RecursionError: deep"),
    ],
)
def test_what_a_source_raises_becomes_its_status(error, status, text):
    (answer,) = run(raises(error))
    assert answer.status == status
    assert text in answer.error
    assert "\x1b" not in answer.error
    assert "\n" not in answer.error
    assert answer.pieces[0].fields == {"hostname": "gpu001"}


def test_a_section_that_raises_costs_itself_only():
    def broken(_root, unread):
        unread.add("a", "absent", "b")
        raise Absent("no NVIDIA driver")

    def read(ctx):
        yield read_section("driver", broken, ctx.root)
        yield "node", {"hostname": "a"}, []

    (answer,) = run(read)
    assert answer.status == "ok"
    assert (answer.pieces[0].status, answer.pieces[0].error, answer.pieces[0].fields) == (
        "absent",
        "no NVIDIA driver",
        {},
    )
    assert answer.pieces[0].unread == [{"field": "a", "status": "absent", "reason": "b"}]
    assert answer.pieces[1].status is None


def test_a_child_holds_none_of_the_callers_files(tmp_path):
    held = (tmp_path / "held").open("w")

    def read(ctx):
        numbers = sorted(int(name) for name in os.listdir("/proc/self/fd"))
        targets = [os.readlink(f"/proc/self/fd/{number}") for number in numbers[:3]]
        yield (
            "node",
            {
                "targets": targets,
                "held": any(
                    "held" in os.path.realpath(f"/proc/self/fd/{number}") for number in numbers
                ),
            },
            [],
        )
        yield "gpus", {"session": os.getsid(0) == os.getpid()}, []

    (answer,) = run(read)
    held.close()
    assert answer.pieces[0].fields == {"targets": ["/dev/null"] * 3, "held": False}
    assert answer.pieces[1].fields == {"session": True}


def test_no_descriptor_is_left_open():
    before = len(os.listdir("/proc/self/fd"))
    run(good, crashes, exits, stalls, silence_s=0.5)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_child_of_a_parent_that_has_gone_ends_by_itself(tmp_path):
    note = tmp_path / "pid"
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:

        def read(ctx):
            note.write_text(str(os.getpid()))
            os.kill(os.getppid(), signal.SIGKILL)
            while True:
                yield "node", {"x": "y" * 4096}, []

        run(read)
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    os.read(reader, 1)  # returns when no process has the other end open any more
    os.close(reader)
    child = int(note.read_text())
    for _ in range(600):
        if (
            not Path(f"/proc/{child}").exists()
            or Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        ):
            return
        time.sleep(0.05)
    pytest.fail("the child outlives its parent")
