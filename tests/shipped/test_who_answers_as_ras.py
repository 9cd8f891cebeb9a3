"""Any user may listen at the port of NCCL's RAS: real processes of real other users, which lie
about a job or answer for it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from inspected import inspection_of, render_details
from other_users import program

from unhang_node.base.root import Root
from unhang_node.job import ras
from unhang_node.job.look import look
from unhang_node.job.samples import ras_sample

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="starts processes of other users, which needs root"
)
NOBODY, OWNER = 65534, 12345
PATIENCE = {"silence_s": 60, "deadline_s": 200}


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """A loaded machine is slow, and no test here is about that."""
    monkeypatch.setattr(ras, "FIRST_WORD_S", 20.0)
    monkeypatch.setattr(ras, "ANSWER_S", 60.0)


# Answers as NCCL does about a rank: that it lives and launched more operations each time, or that
# it is dead.
SERVER = """
import json, os, socket, sys, threading, time
host, port, lie, pid, ready = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]) or os.getpid(), int(sys.argv[5])
counted = [0]
def row(rank, of): return {"rank": rank, "host": "here", "pid": of, "cuda_dev": 0, "nvml_dev": 0}
def status():
    counted[0] += 100
    alive = {**row(0, pid), "status": {"init_state": 0, "async_error": 0}, "collective_counts": {"AllReduce": counted[0]}}
    dead = {**row(0, pid), "status": {"considered_dead": True}}
    other = {**row(1, pid + 100000), "status": {"init_state": 0}, "collective_counts": {"AllReduce": 7}}
    return {"nccl_version": "2.28.9", "communicators": [{"hash": "0x1", "size": 2 if lie == "dead" else 1,
            "ranks": [other] if lie == "dead" else [alive], "missing_ranks": [dead] if lie == "dead" else []}]}
def answer(link):
    with link:
        link.recv(4096)
        link.sendall(b"OK\\n")
        link.recv(4096)
        link.sendall(b"OK\\n" + json.dumps(status()).encode() + b"\\n")
server = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if ":" in host: server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
server.bind((host, port))
server.listen()
os.write(ready, b"1")
while True:
    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
"""


def rank(
    port: int,
    code: str = "import os, sys, time; os.write(int(sys.argv[-1]), b'1'); time.sleep(600)",
    *arguments: object,
    within: tuple[str, ...] = (),
):
    address, uid = f"localhost:{port}", 0 if within else OWNER
    return program(
        uid,
        code,
        *arguments,
        within=within,
        RANK="0",
        WORLD_SIZE="1",
        MASTER_ADDR=f"ras-{os.getpid()}-{port}",
        NCCL_RAS_ADDR=address,
    )


# In a network of its own, whose localhost is up.
APART = """
import fcntl, os, socket, struct, sys
with socket.socket() as link:
    flags, = struct.unpack_from("16xh22x", fcntl.ioctl(link, 0x8913, struct.pack("16s24x", b"lo")))
    fcntl.ioctl(link, 0x8914, struct.pack("16sh22x", b"lo", flags | 1))
os.setgroups([])
os.setresgid(*[int(sys.argv[1])] * 3)
os.setresuid(*[int(sys.argv[1])] * 3)
os.execv(sys.argv[2], sys.argv[2:])
"""


def apart(uid: int) -> tuple[str, ...]:
    return ("/usr/bin/unshare", "--net", "/usr/bin/python3", "-c", APART, str(uid))


def as_user(uid: int, act: Callable[[], object]) -> Any:
    """What a child returns that has become the user."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.write(writer, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def looked(process) -> dict:
    document = look(
        {
            "pids": [process.pid],
            "gap_s": 0.3,
            **PATIENCE,
            "without": ["nvml", "stacks", "sockets", "log_tail", "kernel_log", "locks"],
        },
        None,
    )
    assert [row["pid"] for row in document["ranks"]] == [process.pid]
    return document


@pytest.mark.parametrize("lie", ["dead", "growing"])
def test_a_stranger_who_listens_at_the_port_is_not_believed(lie):
    port = free_port()
    with rank(port) as process, program(NOBODY, SERVER, "127.0.0.1", port, lie, process.pid):
        document = looked(process)
        sample = ras_sample(Root(), document["ranks"], 1.0)
    probe = document["sections"]["ras"]["probe"]
    assert (probe["status"], "looks" in document["sections"]["ras"]) == ("denied", False)
    assert f"127.0.0.1:{port} (user nobody) is not a process of the job" in probe["error"]
    assert sample["ras"] is None and "user nobody" in sample["why"]
    found = inspection_of([document])
    assert (found["state"], found["suspects"]) == ("unknown", [])
    assert "user nobody" in render_details(found)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_the_job_s_own_listener_is_believed(host):
    port = free_port()
    with rank(port, SERVER, host, port, "growing", 0) as process:
        document = looked(process)
        sample = ras_sample(Root(), document["ranks"], 1.0)
    assert document["sections"]["ras"]["probe"]["status"] == "ok"
    assert len(document["sections"]["ras"]["looks"]) == 2
    assert sample["ras"]["counts"]["0"] >= 300


@pytest.mark.parametrize("host", ["127.0.0.1", "::"])
def test_the_job_is_asked_in_a_network_of_its_own(host):
    """As a container has it; a stranger listens at the same port of the node."""
    port = free_port()
    with (
        rank(port, SERVER, host, port, "growing", 0, within=apart(OWNER)) as process,
        program(NOBODY, SERVER, "127.0.0.1", port, "dead", process.pid),
    ):
        before = os.readlink("/proc/self/ns/net")
        assert os.readlink(f"/proc/{process.pid}/ns/net") != before
        document = looked(process)
        sample = ras_sample(Root(), document["ranks"], 1.0)
        assert os.readlink("/proc/self/ns/net") == before
    assert document["sections"]["ras"]["probe"]["status"] == "ok", document["sections"]["ras"][
        "probe"
    ]
    assert all(
        look["communicators"][0]["missing"] == [] for look in document["sections"]["ras"]["looks"]
    )
    assert sample["ras"]["counts"]["0"] >= 300


def test_a_stranger_in_the_job_s_network_is_not_believed_there():
    port = free_port()
    with rank(port, within=apart(OWNER)) as process:
        inside = (
            "/usr/bin/nsenter",
            f"--net=/proc/{process.pid}/ns/net",
            "/usr/bin/setpriv",
            f"--reuid={NOBODY}",
            "--clear-groups",
        )
        with program(0, SERVER, "127.0.0.1", port, "dead", process.pid, within=inside):
            document = looked(process)
    probe = document["sections"]["ras"]["probe"]
    assert (probe["status"], "user nobody" in probe["error"]) == ("denied", True)


def test_who_may_not_enter_the_job_s_network_reads_why():
    """As the job's owner, whose container root started."""
    port = free_port()
    with rank(port, SERVER, "127.0.0.1", port, "growing", 0, within=apart(OWNER)) as process:
        ranks = looked(process)["ranks"]
        sample = as_user(OWNER, lambda: ras_sample(Root(), ranks, 1.0))
    assert sample["ras"] is None
    assert "only root may enter the network of process" in sample["why"]


def test_the_job_is_asked_where_a_stranger_listens_at_the_other_kind_of_address():
    """localhost is ::1 first."""
    port = free_port()
    with (
        rank(port, SERVER, "127.0.0.1", port, "growing", 0) as process,
        program(NOBODY, SERVER, "::1", port, "dead", process.pid),
    ):
        document = looked(process)
    assert all(
        look["communicators"][0]["missing"] == [] for look in document["sections"]["ras"]["looks"]
    )


def test_an_address_that_a_user_names_elsewhere_is_not_asked():
    """Root connects to no service because a variable of a user says so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        with rank(server.getsockname()[1]) as process:
            document = looked(process)
        with pytest.raises(TimeoutError):
            server.accept()
    assert document["sections"]["ras"]["probe"]["status"] == "denied"


# The job's own listener, which closes when it is signalled.
CLOSES = """
import os, signal, socket, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
    os.write(int(sys.argv[-1]), b"1")
    signal.sigwait({signal.SIGUSR1})
signal.pause()
"""


def has_socket(pid: int) -> bool:
    # realpath, because one that closes meanwhile is no error
    return any("/socket:" in os.path.realpath(fd) for fd in os.scandir(f"/proc/{pid}/fd"))


def test_who_takes_the_port_between_the_look_and_the_connection_is_not_believed():
    """The job's listener is there when it is looked for; then it closes, and the connection lands
    at a stranger's."""
    port, moments = free_port(), []
    with contextlib.ExitStack() as strangers, rank(port, CLOSES, port) as process:

        def mark(moment: str, _limit_s: float = 0) -> None:
            if moment.startswith("ask RAS") and not moments:
                process.send_signal(signal.SIGUSR1)
                while has_socket(process.pid):
                    time.sleep(0.01)
                strangers.enter_context(
                    program(NOBODY, SERVER, "127.0.0.1", port, "dead", process.pid)
                )
                moments.append(moment)

        with pytest.raises(PermissionError, match="not a process of the job: ignored"):
            ras.ask(
                Root(),
                ras.Service(f"localhost:{port}", [{"pid": process.pid}], True),
                mark,
                tries=2,
            )
    assert moments


def test_a_process_that_runs_is_not_gone_because_ras_says_so():
    """By the job's own RAS: what /proc shows outweighs it."""
    port = free_port()
    with rank(port, SERVER, "127.0.0.1", port, "dead", 0) as process:
        document = looked(process)
    found, state = inspection_of([document]), document["sections"]["proc"]["ranks_2"][0]["state"]
    assert (found["state"], state in "SR") == ("unknown", True), json.dumps(found)
    assert f"it is there, in state {state}" in found["headline"]
