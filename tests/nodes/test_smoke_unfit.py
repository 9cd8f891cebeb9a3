"""A rank that hangs in the kernel permanently: it reads a file system whose server takes requests
and never answers.

Nothing is simulated: the process is in state D, SIGKILL does not end it, and it ends only when the
file system is released.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unhang.core.smoke_result import document_of, smoke_result
from unhang.smoke.experiments import worth_trying
from unhang.smoke.local import free_port, run_local
from unhang.smoke.node_plans import Member, NodePlan, Request, plan_group
from unhang.smoke.payload_zip import payload_bytes
from unhang.smoke.result import judge

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120


@pytest.fixture
def dead_mount(tmp_path):
    """(folder, function that releases it)."""
    folder = tmp_path / "export"
    folder.mkdir()
    server = subprocess.Popen(
        [sys.executable, str(PROJECT / "tests" / "fakes" / "dead_mount.py"), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout.readline() == "mounted\n"

    def let_go():
        server.stdin.close()
        server.wait(DEADLINE_S)
        server.stdout.close()

    yield folder, let_go
    if server.poll() is None:
        let_go()


def state(pid):
    """The state letter of a process, None when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return None


@pytest.fixture
def judged(dead_mount):
    """judged(settings of rank 1, drills) -> the result of three ranks."""

    def run(settings, drills=(), **plan):
        request = Request(
            backend="gloo",
            phases=("all_reduce",),
            rank_environment={"1": settings},
            environment={"OMP_NUM_THREADS": "1"},
            drills=drills,
            max_bytes=65536,
        )
        [node] = plan_group(request, [Member("gpu007", 3, "lo")], "127.0.0.1", free_port())
        node = NodePlan(node.host, node.ranks, {**node.document, **plan})
        variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NCCL_", "GLOO_", "RANK", "WORLD_", "LOCAL_", "MASTER_"))
        }
        return document_of(judge([run_local(node, payload_bytes(), environment=variables)]))

    return run


def unfit(result, phase):
    """The pid of the process that made the node unfit; the verdict must name it and the process
    must really exist, or the verdict is wrong."""
    assert (result["verdict"], result["unfit"]) == ("fail", ["gpu007"])
    suspect = result["suspects"][0]
    assert (suspect["host"], suspect["rank"], suspect["phase"]) == ("gpu007", 1, phase)
    [evidence] = [row for row in result["evidence"] if row["rank"] == 1]
    assert f"its process {evidence['pid']} survives SIGKILL (state D" in suspect["why"]
    assert "the node is unfit" in suspect["why"]
    assert "reboot" in suspect["next"]
    assert state(evidence["pid"]) == "D"
    assert worth_trying(smoke_result(result)) is None, "an unfit node is no place for experiments"
    return evidence["pid"]


def gone(pid):
    """Whether a process ends."""
    until = time.monotonic() + DEADLINE_S
    while state(pid) not in (None, "Z") and time.monotonic() < until:
        time.sleep(0.05)
    return state(pid) in (None, "Z")


def test_an_interpreter_that_hangs_in_the_kernel_before_it_has_told_anything_is_named(
    dead_mount, judged
):
    folder, let_go = dead_mount
    result = judged({"PYTHONPATH": str(folder)}, start_timeout_s=20)
    pid = unfit(result, "environment")
    assert "fail" not in {row["status"] for row in result["phases"]}, (
        "told before the others gave up waiting at the rendezvous"
    )
    assert [row["step"] for row in result["evidence"] if row["rank"] == 1] == [
        "start the interpreter"
    ]
    let_go()
    assert gone(pid)


def test_a_rank_that_hangs_in_the_kernel_in_the_middle_of_collectives_is_named_with_its_stack(
    dead_mount, judged
):
    folder, let_go = dead_mount
    drills = ({"rank": 1, "fault": "read", "phase": "all_reduce"},)
    result = judged({"UNHANG_DRILL_FILE": str(folder / "data")}, drills, step_timeout_s=15)
    pid = unfit(result, "all_reduce")
    [evidence] = [row for row in result["evidence"] if row["rank"] == 1]
    assert "in drill" in evidence["stack"], "the process hangs, a thread of it still answers"
    let_go()
    assert gone(pid)
