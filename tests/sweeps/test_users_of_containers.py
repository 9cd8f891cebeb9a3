"""A user with many uids counts once in the limit on ranks: real user namespaces, as a rootless
container has them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from other_users import program

from unhang_node.base.context import Context
from unhang_node.base.root import Root
from unhang_node.job.finding import read_ranks
from unhang_node.job.look import OPTIONS
from unhang_node.job.namespaces import Person, maker_of_users

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="starts processes of other users, which needs root"
)
NOBODY, OWNER, SUBUIDS = 65534, 12345, range(300_000, 300_400)
# Starts ranks, which end with it; in a user namespace each as a uid of its own, once its map of
# uids is there, as newuidmap writes it.
RANKS = """
import ctypes, os, sys, time
libc, count, kind, ready = ctypes.CDLL(None), int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
if kind != "plain" and libc.unshare(0x10000000): sys.exit("unshare")
os.write(ready, b"1")
while kind != "plain" and not open("/proc/self/gid_map").read(): time.sleep(0.01)
argv = ["/usr/bin/unshare", "-U", "/bin/sleep", "600"] if kind == "nested" else ["/bin/sleep", "600"]
for number in range(count):
    if os.fork() == 0:
        if kind != "plain":
            os.setresgid(1, 1, 1)
            os.setresuid(*[number + 1] * 3)
        libc.prctl(1, 9)
        os.execve(argv[0], argv, {"RANK": str(number), "WORLD_SIZE": str(count), "MASTER_PORT": "29500"})
while True: time.sleep(600)
"""


@contextlib.contextmanager
def ranks_of(uid: int, count: int, kind: str) -> Iterator[list[int]]:
    """The ranks that a user starts: kind is plain, own (each with a uid of its own in a user
    namespace) or nested (each in a user namespace below that)."""
    with program(uid, RANKS, count, kind) as process:
        if kind != "plain":
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{process.pid}/{name}").write_text(f"0 {SUBUIDS[0]} {len(SUBUIDS)}\n")
        started: list[int] = []
        until = time.monotonic() + 60
        while len(started) < count:
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.02)
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            started = [
                int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
            ]
        yield started


@pytest.mark.parametrize(("maker", "kind"), [(NOBODY, "own"), (NOBODY, "nested"), (0, "own")])
def test_three_hundred_uids_of_a_container_push_no_job_out(maker, kind):
    with ranks_of(OWNER, 8, "plain") as own, ranks_of(maker, 300, kind) as others:
        uids = {os.stat(f"/proc/{pid}").st_uid for pid in others}
        context = Context(Root(), {**OPTIONS, "skipped": []}, (), None)
        pieces = list(read_ranks(context))
        [space] = {os.readlink(f"/proc/{pid}/ns/user") for pid in others} if kind == "own" else [""]
    assert len(uids) == 300 and uids <= set(SUBUIDS)
    assert set(own) <= {row["pid"] for piece in pieces for row in piece[1].get("ranks", [])}
    who = f"root ({space})" if maker == 0 else "nobody"
    assert [
        row
        for piece in pieces
        for row in piece[2]
        if row["reason"].startswith(f"of user {who}: ") and " of 300 ranks" in row["reason"]
    ]


@pytest.mark.parametrize("kind", ["own", "nested"])
def test_the_uids_of_a_container_are_whose_it_is(kind):
    with ranks_of(NOBODY, 2, kind) as pids:
        assert {maker_of_users(Root(), pid) for pid in pids} == {Person(NOBODY)}


def test_a_process_in_no_container_has_its_own_uid():
    with ranks_of(OWNER, 1, "plain") as pids:
        assert [maker_of_users(Root(), pid) for pid in (*pids, os.getpid(), 1 << 22)] == [None] * 3
