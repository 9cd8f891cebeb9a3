"""The test bed itself, on which all other integration tests depend."""

from __future__ import annotations

import json
import os
import pathlib
import select
import signal
import subprocess
import sys

import four_nodes as shared
from testbed import Testbed

BED_IN_A_PROCESS = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from testbed import Testbed
with Testbed(sys.argv[2], ["solo"]) as bed:
    print(bed.keeper_pid, bed.folder, flush=True)
    sys.stdin.read()
"""


def test_a_killed_session_leaves_no_process_and_the_next_one_clears_the_rest(tmp_path):
    def start():
        argv = [
            sys.executable,
            "-c",
            BED_IN_A_PROCESS,
            str(pathlib.Path(__file__).parents[1] / "support"),
            str(shared.CACHE),
        ]
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with start() as killed:
        keeper, folder = killed.stdout.readline().split()
        descriptor = os.pidfd_open(int(keeper))
        killed.send_signal(signal.SIGKILL)
    # A process descriptor becomes readable when its process has ended.
    assert select.select([descriptor], [], [], 300)[0], "the keeper of a killed session still runs"
    os.close(descriptor)
    assert pathlib.Path(folder).exists()
    with start() as following:
        following.stdout.readline()
        assert not pathlib.Path(folder).exists()
        following.send_signal(signal.SIGINT)
        own = following.wait(300)
    assert own != 0
    records = [json.loads(record.read_text()) for record in (shared.CACHE / "running").glob("*")]
    assert {killed.pid, following.pid}.isdisjoint(record["pid"] for record in records)


def test_two_beds_at_a_time_do_not_meet(bed):
    with Testbed(shared.CACHE, ["gpu001"]) as other:
        assert other.nodes["gpu001"].address == bed.nodes["gpu001"].address
        assert other.nodes["gpu001"].host_key != bed.nodes["gpu001"].host_key
        assert bed.nodes["gpu001"].ssh("true").returncode == 0
        assert other.nodes["gpu001"].ssh("true").returncode == 0
