"""What moves in a rank and for what it waits, read of real processes beside busy neighbours: children,
bytes, locks, FIFOs, sockets."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from inspected import answer_of, certainty_of, halted_words, inspection_of

from unhang.core.verdict.answer import screen_of
from unhang.core.verdict.job import CHILDREN, DATA, SOCKETS
from unhang.jobs.inspect.evidence import ProcessRow, rows_of
from unhang.jobs.inspect.moves import at_rest, moves
from unhang_node.base.context import Context
from unhang_node.base.root import Root
from unhang_node.base.section import Denied
from unhang_node.job.look import OPTIONS, look
from unhang_node.job.looks import look_at, read_proc_looks, wchan_of
from unhang_node.job.parse.process_state import parse_sockets
from unhang_node.job.process_table import descendants, read_stats, stat_of
from unhang_node.job.tcp_bytes import Carried
from unhang_node.job.waits import _LOCK, _call, _lock, wait_of

PATIENCE_S = 60
LOOK_S = 2.0


@contextlib.contextmanager
def process(code: str, *arguments: str):
    """A Python program that prints a line when it is where the test wants it; at the end it and what
    it started are killed by their numbers."""
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code, *arguments], stdout=subprocess.PIPE
    ) as started:
        try:
            assert started.stdout is not None and started.stdout.readline()
            yield started.pid
        finally:
            for pid in (*descendants(read_stats(Root()), [started.pid])[started.pid], started.pid):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)


def rank_of(pid: int) -> dict:
    return {"pid": pid, "started": stat_of(Root(), pid).started}


def moved(pid: int, *others: int) -> dict[str, str]:
    """What moves in a rank of a job that has others."""
    ranks, carried, looks = [rank_of(one) for one in (pid, *others)], Carried(Root()), []
    for pause_s in (LOOK_S, 0):
        stats = read_stats(Root())
        rates = carried.rates(ranks, descendants(stats, [pid, *others]))
        rows = [look_at(Root(), one["pid"], one["started"], stats) for one in ranks]
        full = [{**row, **rates.get(row["pid"], {})} for row in rows]
        looks.append((time.monotonic(), rows_of(ProcessRow, full)))
        time.sleep(pause_s)
    (first_s, first), (second_s, second) = looks
    pairs = [(*pair, second_s - first_s) for pair in zip(first, second, strict=True)]
    return moves(*pairs[0], at_rest(pairs))


def comes_to(pid: int, sign: str, *others: int) -> str:
    """What a look finds of it; looks go on, because a crowded machine may give it no time."""
    until = time.monotonic() + PATIENCE_S
    while not (found := moved(pid, *others).get(sign, "")) and time.monotonic() < until:
        pass
    return found


BUSY = "while True: pass"
CHILD = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', sys.argv[1]]); print(); p.wait()"
SHORT_CHILDREN = """
import subprocess, sys
busy = "import time; end = time.process_time() + 0.3\\nwhile time.process_time() < end: pass"
print()
while True: subprocess.run([sys.executable, "-c", busy])
"""
SEND = """
import socket, sys, time
size, pause = int(sys.argv[2]), float(sys.argv[3])
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print()
while True: c.sendall(bytes(size)); time.sleep(pause)
"""
RECEIVE = """
import socket
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])
c = s.accept()[0]
while True: c.recv(1 << 16)
"""
COPY = "import shutil, sys; print()\nwhile True: shutil.copyfile(sys.argv[1], '/dev/null')"


@contextlib.contextmanager
def receiver(size: int, pause_s: float, argv: Sequence[str] = (RECEIVE,)):
    """A program that receives, or whose child does, from another one, which is not below it."""
    with subprocess.Popen([sys.executable, "-u", "-c", *argv], stdout=subprocess.PIPE) as rank:
        try:
            port = rank.stdout.readline().decode().strip()
            with process(SEND, port, str(size), str(pause_s)):
                yield rank.pid
        finally:
            for pid in descendants(read_stats(Root()), [rank.pid])[rank.pid]:
                os.kill(pid, signal.SIGKILL)
            rank.kill()


@pytest.mark.parametrize("code", [CHILD, SHORT_CHILDREN], ids=["one child", "children that end"])
def test_children_that_compute_move_a_rank_that_waits_for_them(code):
    with process(code, BUSY) as pid:
        assert comes_to(pid, CHILDREN)


def test_bytes_that_arrive_move_a_rank_and_a_heartbeat_does_not():
    with receiver(1 << 18, 0.25) as pid:
        assert comes_to(pid, SOCKETS)
    with receiver(64, 0.05) as pid:
        assert moved(pid) == {}


SLEEP = "import time; print(); time.sleep(600)"
BELOW = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-u", "-c", sys.argv[1]], stdout=subprocess.PIPE)
print(child.stdout.readline().decode().strip()); child.wait()
"""


@pytest.mark.parametrize("argv", [[RECEIVE], [BELOW, RECEIVE]], ids=["itself", "its child"])
def test_a_slow_download_moves_a_rank_beside_one_at_rest_and_a_heartbeat_does_not(argv):
    with receiver(4096, 0.1, argv) as pid, process(SLEEP) as at_rest_pid:
        assert comes_to(pid, SOCKETS, at_rest_pid).endswith(" KB/s arrive from 127.0.0.1")
    with receiver(64, 0.05, argv) as pid, process(SLEEP) as at_rest_pid:
        assert moved(pid, at_rest_pid) == {}


def test_where_all_ranks_get_as_little_none_is_at_rest():
    with receiver(2048, 0.1) as pid, receiver(2048, 0.1) as other:
        assert moved(pid, other) == {}


def test_data_from_a_cache_moves_a_rank_that_no_disk_shows(tmp_path):
    (tmp_path / "shard").write_bytes(bytes(1 << 24))
    with process(COPY, str(tmp_path / "shard")) as pid:
        assert comes_to(pid, DATA)


def test_a_store_that_many_ask_for_a_sign_of_life_does_not_move():
    """A thousand ranks, each with a call of 100 bytes a second."""
    first = ProcessRow(1, call_bytes=0, calls=0)
    asked, data = (ProcessRow(1, call_bytes=1000 * 100 * 3, calls=calls) for calls in (3000, 50))
    assert moves(first, asked, 3.0, {}) == {}
    assert list(moves(first, data, 3.0, {})) == [DATA]


def test_neighbours_that_compute_and_download_do_not_move_a_rank_that_sleeps():
    with (
        process("import time; print(); time.sleep(600)") as pid,
        process(CHILD, BUSY),
        receiver(1 << 18, 0.25),
    ):
        assert moved(pid) == {}


def waiting(pid: int) -> dict | None:
    """For what it waits, as soon as it does."""
    until = time.monotonic() + PATIENCE_S
    while True:
        target = {path.name: os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
        inodes = {name[8:-1] for name in target.values() if name.startswith("socket:")}
        sockets = parse_sockets(Path(f"/proc/{pid}/net/tcp").read_text(), inodes)
        started, place = stat_of(Root(), pid).started, wchan_of(Root(), f"/proc/{pid}")
        found = wait_of(Root(), pid, started, place, read_stats(Root()), sockets)
        if found or time.monotonic() > until:
            return found
        time.sleep(0.1)


def hidden(pid: int) -> dict | None:
    """For what it waits by its open files and children alone."""
    return wait_of(Root(), pid, stat_of(Root(), pid).started, None, read_stats(Root()), {})


def test_a_child_is_named_with_its_state():
    with process(CHILD, "import time; time.sleep(600)") as pid:
        found = waiting(pid)
        child = descendants(read_stats(Root()), [pid])[pid][0]
    assert found["call"] == "wait"
    assert found["child"]["pid"] == child and found["child"]["state"] in "SRD"


LOCK = "import fcntl, sys; f = open(sys.argv[1], 'w'); print(); fcntl.{}(f, fcntl.LOCK_EX); print(); import time; time.sleep(600)"


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_a_lock_is_named_with_its_holder(call, tmp_path):
    path = str(tmp_path / "dataset.lock")
    with process(LOCK.format(call), path) as holder:
        time.sleep(0.5)
        with process(LOCK.format(call), path) as pid:
            found = waiting(pid)
    assert found["call"] == {"flock": "flock", "lockf": "lock"}[call]
    assert (found["target"], found["holder"]["pid"]) == (path, holder)


POLLS = """
import fcntl, sys, time
f = open(sys.argv[1], "w"); print()
while True:
    try: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError: time.sleep(0.1)
"""


def test_a_lock_that_is_polled_is_named_with_its_holder_and_a_file_that_nobody_locked_is_not(
    tmp_path,
):
    path, other = str(tmp_path / "dataset.lock"), str(tmp_path / "log")
    with process(LOCK.format("flock"), path) as holder:
        time.sleep(0.5)
        with process(POLLS, path) as pid:
            found = waiting(pid)
        with process(
            "import sys, time; f = open(sys.argv[1], 'w'); print(); time.sleep(600)", other
        ) as pid:
            assert hidden(pid) is None
    assert (found["call"], found["target"], found["holder"]["pid"]) == ("polls", path, holder)


IN_OWN_MOUNTS = (
    "import os, sys; os.execvp('unshare', ['unshare', '-m', sys.executable, '-uc', *sys.argv[1:]])"
)
TWO_FILES = """
import fcntl, os, subprocess, sys, time
files = [f"{folder}/lock" for folder in sys.argv[1:3]]
for path in files:
    subprocess.run(["mount", "-t", "tmpfs", "none", os.path.dirname(path)], check=True)
    open(path, "w").close()
assert len({os.stat(path).st_ino for path in files}) == 1
ready, told = os.pipe()
if not os.fork():
    held = open(files[0], "w"); fcntl.flock(held, fcntl.LOCK_EX); os.write(told, b"."); time.sleep(600)
seen = open(files[int(sys.argv[3])], "w"); os.read(ready, 1); print()
time.sleep(600)
"""


@pytest.mark.parametrize("of", [0, 1], ids=["the file that is locked", "a file of another device"])
def test_of_two_files_with_one_inode_number_the_one_that_is_locked_is_polled(of, tmp_path):
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("this machine lets this user mount nothing")
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    with process(IN_OWN_MOUNTS, TWO_FILES, *map(str, folders), str(of)) as pid:
        found = hidden(pid)
        holder = descendants(read_stats(Root()), [pid])[pid][0]
    if of:
        assert found is None
    else:
        assert (found["target"], found["holder"]["pid"]) == (f"{folders[0]}/lock", holder)


def test_a_lock_that_others_share_or_that_a_rank_holds_by_itself_keeps_it_out_of_nothing(tmp_path):
    code = LOCK.format("flock").replace("LOCK_EX", "{}")
    path = str(tmp_path / "cache.lock")
    reads = "import sys, time; f = open(sys.argv[1]); print(); time.sleep(600)"
    with process(code.format("LOCK_SH"), path), process(reads, path) as pid:
        time.sleep(0.5)
        assert hidden(pid) is None
    inherits = code.format("LOCK_EX").replace("time.sleep", "os.fork(); time.sleep")
    with process(f"import os; {inherits}", path) as parent:
        time.sleep(0.5)
        pid = descendants(read_stats(Root()), [parent])[parent][0]
        assert hidden(pid) is None


def verdict_on(pid: int) -> dict:
    """By a look from outside, as `unhang inspect --pid` makes it, without stacks."""
    without = ["ras", "stacks", "nvml", "kernel_log"]
    return inspection_of([look({"pids": [pid], "gap_s": 0.5, "without": without}, None)])


@pytest.mark.parametrize(
    ("group", "switch", "frozen", "thawed"),
    [("unified", "cgroup.freeze", "1", "0"), ("freezer", "freezer.state", "FROZEN", "THAWED")],
)
def test_a_frozen_control_group_is_named_and_is_no_fault_of_the_kernel(
    group, switch, frozen, thawed
):
    mount = Path("/sys/fs/cgroup")
    mount = mount / group if (mount / group).is_dir() else mount
    folder = mount / f"unhang test {os.getpid()}"
    with process(SLEEP) as pid:
        try:
            folder.mkdir()
            (folder / "cgroup.procs").write_text(str(pid))
            (folder / switch).write_text(frozen)
        except OSError as problem:
            pytest.skip(f"this machine lets nobody freeze a {group} control group: {problem}")
        try:
            found = verdict_on(pid)
        finally:
            (folder / switch).write_text(thawed)
            (mount / "cgroup.procs").write_text(str(pid))
            folder.rmdir()
        assert verdict_on(pid)["suspects"] == []
    [suspect] = found["suspects"]
    assert (found["state"], suspect["phase"], certainty_of(found)) == ("hung", "frozen", "sure")
    assert suspect["why"] == f"its control group {folder} is frozen"
    assert f"the switch in '{folder}'" in suspect["next"]
    assert halted_words(found) == "a process of it was frozen by somebody, who can let it go on"


def test_a_stopped_child_for_which_a_rank_waits_is_named_with_what_lets_it_go_on():
    with process(CHILD, "import time; time.sleep(600)") as pid:
        child = descendants(read_stats(Root()), [pid])[pid][0]
        assert verdict_on(pid)["suspects"] == []
        os.kill(child, signal.SIGSTOP)
        found = verdict_on(pid)
    [suspect] = found["suspects"]
    assert found["state"] == "hung" and f"its child {child} (python" in suspect["why"]
    assert f"kill -CONT {child} on" in suspect["next"]
    command = screen_of(answer_of(found)).next_command
    assert command.startswith("grep -e State -e TracerPid /proc/")


@pytest.mark.parametrize(("sleeps_s", "wakes"), [(2.5, True), (600, False)])
def test_who_sleeps_again_and_again_is_seen_to_wake_whenever_the_looks_begin(sleeps_s, wakes):
    code = "import sys, time; print()\nwhile True: time.sleep(float(sys.argv[1]))"
    with process(code, str(sleeps_s)) as pid:
        ranks = [{**rank_of(pid), "rank": 0}]
        options = {**OPTIONS, "ranks": ranks, "gap_s": 0.1}
        rows = {}
        for _, fields, *_ in read_proc_looks(Context(Root(), options, (), None)):
            rows.update({name: row for name in fields if "ranks_" in name for row in fields[name]})
    assert (rows["ranks_2"]["switches"] > rows["ranks_1"]["switches"]) is wakes


def test_a_fifo_is_named(tmp_path):
    path = tmp_path / "samples.fifo"
    os.mkfifo(path)
    with process(
        "import sys; f = open(sys.argv[1], 'r+b', 0); print(); f.read(1)", str(path)
    ) as pid:
        assert (waiting(pid) or {})["target"] == str(path)


def test_a_peer_and_an_address_that_is_listened_at_are_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        client = "import socket, sys; c = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); print(); c.recv(1)"
        with process(client, port) as pid:
            found = waiting(pid)
    assert (found["call"], found["sockets"][0]["remote"]) == ("recv", f"127.0.0.1:{port}")
    serves = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(); s.accept()"
    with process(serves) as pid:
        found = waiting(pid)
    assert (found["call"], found["sockets"][0]["state"]) == ("accept", "LISTEN")


def test_the_sockets_of_an_event_loop_are_named():
    loop = "import selectors, socket; s = socket.create_server(('127.0.0.1', 0)); e = selectors.DefaultSelector(); e.register(s, 1); print(); e.select()"
    with process(loop) as pid:
        found = waiting(pid)
    assert found["call"] == "epoll"
    assert [one["state"] for one in found["sockets"]] == ["LISTEN"]


def test_a_rank_that_computes_waits_for_nothing():
    with process("print()\nwhile True: pass") as pid:
        assert hidden(pid) is None


def test_a_process_that_has_the_number_of_one_that_ended_is_not_read():
    with (
        process("import time; print(); time.sleep(600)") as pid,
        pytest.raises(Denied, match="is another process now"),
    ):
        wait_of(Root(), pid, stat_of(Root(), pid).started - 1, None, {}, {})


@pytest.mark.parametrize(
    ("syscall", "wchan", "call"),
    [
        ("", "do_wait", "wait"),
        ("", "locks_lock_inode_wait", "flock"),
        ("", "inet_csk_accept", "accept"),
        ("", "pipe_read", "read"),
        ("running", None, None),
        ("99999 0x1", "do_wait", None),
        ("", "futex_wait_queue", None),
    ],
)
def test_where_the_call_is_hidden_the_place_in_the_kernel_says_it(syscall, wchan, call):
    assert _call(syscall, wchan)[0] == call


def test_only_the_lock_that_this_process_waits_for_is_read():
    table = (
        "1: FLOCK  ADVISORY  WRITE 10 00:13:500 0 EOF\n"
        "1: -> FLOCK  ADVISORY  WRITE 11 00:13:500 0 EOF\n"
        "2: POSIX  ADVISORY  READ 12 00:13:501 0 EOF\n"
        "2: -> POSIX  ADVISORY  WRITE 13 00:13:501 0 EOF\n"
        "3: OFDLCK ADVISORY  WRITE -1 00:13:502 0 EOF\n"
    )
    found = [_lock(_LOCK.findall(table), pid) for pid in (11, 13, 10)]
    assert found == [("00:13:500", 10), ("00:13:501", 12), (None, None)]
