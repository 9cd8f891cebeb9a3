"""A rank that hangs in the kernel for good: its Python looks for packages on a file system whose server takes requests and never answers.

Nothing is simulated: the process is in state D, SIGKILL does not end it, and it goes only when the file system is let go.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unhang.smoke.experiments import worth_trying
from unhang.smoke.local import free_port, payload_path, run_local
from unhang.smoke.plan import Member, NodePlan, Request, plan_group
from unhang.smoke.result import judge

PROJECT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120


@pytest.fixture
def dead_mount(tmp_path):
    """(folder, what lets it go)."""
    folder = tmp_path / "export"
    folder.mkdir()
    server = subprocess.Popen(
        [sys.executable, str(PROJECT / "tests" / "fakes" / "dead_mount.py"), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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
    """The letter of a process, None when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return None


@pytest.fixture
def judged(dead_mount):
    """(result, what lets the mount go) of three ranks, of which rank 1 has a path on it."""
    folder, let_go = dead_mount
    request = Request(backend="gloo", phases=("all_reduce",), rank_environment={"1": {"PYTHONPATH": str(folder)}}, environment={"OMP_NUM_THREADS": "1"})
    [node] = plan_group(request, [Member("gpu007", 3, "lo")], "127.0.0.1", free_port())
    plan = NodePlan(node.host, node.ranks, {**node.document, "start_timeout_s": 15})
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "GLOO_", "RANK", "WORLD_", "LOCAL_", "MASTER_"))}
    return judge([run_local(plan, payload_path(PROJECT), [sys.executable], environment=variables)]), let_go


def test_a_process_that_survives_sigkill_is_named_with_host_and_pid_and_the_node_called_unfit(judged):
    result, let_go = judged
    assert (result["verdict"], result["unfit"]) == ("fail", ["gpu007"])
    suspect = result["suspects"][0]
    assert (suspect["host"], suspect["rank"], suspect["phase"]) == ("gpu007", 1, "environment")
    [evidence] = [row for row in result["evidence"] if row["rank"] == 1]
    pid = evidence["pid"]
    assert f"its process {pid} survives SIGKILL (state D" in suspect["why"]
    assert "the node is unfit" in suspect["why"]
    assert "reboot" in suspect["next"]
    assert state(pid) == "D", "it must really be there, or the verdict is a lie"
    assert evidence["step"] == "start the interpreter"
    assert worth_trying(result) is None, "an unfit node is no place for experiments"
    let_go()
    until = time.monotonic() + DEADLINE_S
    while state(pid) not in (None, "Z") and time.monotonic() < until:
        time.sleep(0.05)
    assert state(pid) in (None, "Z")
