"""Children that stall, crash, flood or refuse to die cost their own sections only."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unhang_node import probe
from unhang_node.context import DEFAULTS, Context
from unhang_node.root import Root
from unhang_node.section import Absent, read_section


def context(**options):
    return Context(Root(), dict(DEFAULTS, **options), ["node", "gpus"], load_pynvml=None)


def good(ctx):
    ctx.mark("open /etc/os-release")
    yield "node", {"hostname": "gpu001"}, []


def stalls(ctx):
    yield "gpus", {"count": 8}, [{"field": "x", "status": "absent", "reason": "y"}]
    ctx.mark("nvmlDeviceGetMemoryInfo(3)")
    time.sleep(3600)


def stalls_deaf_to_signals(ctx):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    ctx.mark("read /mnt/nfs/libnccl.so.2")
    time.sleep(3600)
    yield


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
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            os.write(number, b"no json\n")
    time.sleep(3600)
    yield


def raises(error):
    def read(ctx):
        yield "node", {"hostname": "gpu001"}, []
        raise error

    return read


def run(*sources, silence_s=60.0, deadline_s=60.0):
    return probe.run_sources([(str(number), read) for number, read in enumerate(sources)], context(), silence_s, deadline_s)


def children():
    """Process ids of this process's children, zombies among them. Another test of the same worker may have some of its own."""
    found = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as source:
                fields = source.read().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        if int(fields[1]) == os.getpid():
            found.add(int(name))
    return found


@pytest.fixture(autouse=True)
def of_others():
    OF_OTHERS.clear()
    OF_OTHERS.update(children())


OF_OTHERS: set[int] = set()


def no_children_left():
    assert children() - OF_OTHERS == set()


def test_pieces_come_in_order_with_their_times():
    def read(ctx):
        yield "node", {"hostname": "a"}, []
        yield "kernel", {"release": "b"}, [{"field": "taints", "status": "denied", "reason": "no"}]

    (answer,) = run(read)
    assert (answer.status, answer.error) == ("ok", None)
    assert [(piece.section, piece.fields) for piece in answer.pieces] == [("node", {"hostname": "a"}), ("kernel", {"release": "b"})]
    assert answer.pieces[1].unread == [{"field": "taints", "status": "denied", "reason": "no"}]
    assert answer.pieces[0].duration_ms >= 0


def test_a_call_that_never_returns_is_named_and_what_was_read_before_stands():
    stuck, healthy = run(stalls, good, silence_s=1.0)
    assert stuck.status == "timeout"
    assert stuck.error == "nvmlDeviceGetMemoryInfo(3) did not return within 1 s"
    assert [piece.fields for piece in stuck.pieces] == [{"count": 8}]
    assert healthy.status == "ok"
    assert healthy.pieces[0].fields == {"hostname": "gpu001"}
    no_children_left()


def test_several_stuck_sources_cost_one_deadline_not_their_sum():
    started = time.monotonic()
    answers = run(*[stalls] * 6, silence_s=2.0)
    assert time.monotonic() - started < 10.0
    assert {answer.status for answer in answers} == {"timeout"}


def test_a_child_deaf_to_signals_is_killed():
    (answer,) = run(stalls_deaf_to_signals, silence_s=0.5)
    assert answer.status == "timeout"
    assert "read /mnt/nfs/libnccl.so.2" in answer.error
    assert answer.survivor is None
    no_children_left()


def test_a_source_that_marks_for_ever_without_an_answer_meets_the_deadline():
    def read(ctx):
        while True:
            ctx.mark("nvmlDeviceGetUtilizationRates(0)")
        yield

    (answer,) = run(read, deadline_s=1.0)
    assert answer.status == "timeout"
    assert answer.error == "not done within 1 s; last call: nvmlDeviceGetUtilizationRates(0)"


def test_a_call_that_is_known_to_be_slow_may_take_its_time():
    def read(ctx):
        ctx.mark("nvmlDeviceGetHandleByIndex_v2(0)", 60.0)
        time.sleep(1.5)
        ctx.mark("nvmlDeviceGetName(0)")
        yield "gpus", {"count": 1}, []

    (answer,) = run(read, silence_s=1.0, deadline_s=1.0)
    assert (answer.status, answer.error) == ("ok", None)


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
    assert (answer.pieces[0].status, answer.pieces[0].error, answer.pieces[0].fields) == ("absent", "no NVIDIA driver", {})
    assert answer.pieces[0].unread == [{"field": "a", "status": "absent", "reason": "b"}]
    assert answer.pieces[1].status is None


def test_a_child_holds_none_of_the_callers_files(tmp_path):
    held = (tmp_path / "held").open("w")

    def read(ctx):
        numbers = sorted(int(name) for name in os.listdir("/proc/self/fd"))
        targets = [os.readlink(f"/proc/self/fd/{number}") for number in numbers[:3]]
        yield "node", {"targets": targets, "held": any("held" in os.path.realpath(f"/proc/self/fd/{number}") for number in numbers)}, []
        yield "gpus", {"session": os.getsid(0) == os.getpid()}, []

    (answer,) = run(read)
    held.close()
    assert answer.pieces[0].fields == {"targets": ["/dev/null"] * 3, "held": False}
    assert answer.pieces[1].fields == {"session": True}


def test_grandchildren_die_with_a_stuck_child(tmp_path):
    note = tmp_path / "pid"

    def read(ctx):
        pid = os.fork()
        if pid == 0:
            time.sleep(3600)
        note.write_text(str(pid))
        ctx.mark("dpkg-query")
        time.sleep(3600)
        yield

    (answer,) = run(read, silence_s=1.0)
    assert answer.status == "timeout"
    pid = int(note.read_text())
    for _ in range(600):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the grandchild still runs")


def test_no_descriptor_is_left_open():
    before = len(os.listdir("/proc/self/fd"))
    run(good, crashes, exits, stalls, silence_s=0.5)
    assert len(os.listdir("/proc/self/fd")) == before


# The parent gives up root, its child takes it back: then the parent may not kill it, as it cannot kill one in state D.
SURVIVOR = """
import json, os, sys, time
from unhang_node import probe
from unhang_node.context import DEFAULTS, Context
from unhang_node.root import Root

def immortal(ctx):
    os.setresuid(0, 0, 0)
    ctx.mark("nvmlDeviceGetName(0)")
    print(json.dumps(os.getpid()), file=open(sys.argv[1], "w"))
    time.sleep(3600)
    yield

def cannot_exit(ctx):
    os.setresuid(0, 0, 0)
    os._exit = lambda code: time.sleep(3600)
    print(json.dumps(os.getpid()), file=open(sys.argv[1], "w"))
    yield "gpus", {"count": 1}, []

source = {"immortal": immortal, "cannot_exit": cannot_exit}[sys.argv[2]]
os.setresuid(65534, 65534, 0)
(answer,) = probe.run_sources([("nvml", source)], Context(Root(), DEFAULTS, [], None), 2.0, 60.0)
print(json.dumps([answer.status, answer.error, answer.survivor]))
"""
STUCK = "nvmlDeviceGetName(0) did not return within 2 s"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a process that its parent may not kill")
@pytest.mark.parametrize(("source", "status", "error"), [("immortal", "timeout", STUCK), ("cannot_exit", "ok", None)])
def test_a_child_that_survives_sigkill_is_a_fact_and_is_not_waited_for(tmp_path, source, status, error):
    tmp_path.chmod(0o777)
    note = tmp_path / "pid"
    path = str(Path(probe.__file__).parents[1])
    command = [sys.executable, "-c", SURVIVOR, str(note), source]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, timeout=240, check=True)
    pid = json.loads(note.read_text())
    os.kill(pid, signal.SIGKILL)
    survivor = f"process {pid} survives SIGKILL (state S)"
    assert json.loads(done.stdout) == [status, error and f"{error}; {survivor}", survivor]


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
    os.read(reader, 1)  # returns when nobody holds the other end any more
    os.close(reader)
    child = int(note.read_text())
    for _ in range(600):
        if not Path(f"/proc/{child}").exists() or Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the child outlives its parent")
