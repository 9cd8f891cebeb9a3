"""Workers of engines that serve, as real processes with the titles of vLLM and sglang."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from unhang_node.base.root import Root
from unhang_node.job.all_samples import Node, moment_of
from unhang_node.job.samples import processes_of

# Starts its children, each [title, environment, children], says its pid and waits.
NODE = """
import ctypes, json, os, signal, subprocess, sys
title, environment, children = json.loads(sys.argv[1])
ctypes.CDLL(None).prctl(15, title.encode(), 0, 0, 0)
for child in children:
    subprocess.Popen(
        [child[0], "-c", os.environ["NODE"], json.dumps(child)], executable="/proc/self/exe",
        env={"NODE": os.environ["NODE"], **child[1]},
    )
os.write(1, (json.dumps([title, os.getpid()]) + "\\n").encode())
signal.pause()
"""


@contextlib.contextmanager
def tree(title: str, children: list, environment: dict[str, str] | None = None):
    """Yields (the top's pid, {title: pid}) of a tree of processes that sleep."""
    count = 1 + json.dumps(children).count("{")
    with subprocess.Popen(
        [title, "-c", NODE, json.dumps([title, {}, children])],
        executable=sys.executable,
        env={"NODE": NODE, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as top:
        said: list[tuple[str, int]] = []
        try:
            said += [json.loads(top.stdout.readline()) for _ in range(count)]
            yield top.pid, dict(said)
        finally:
            os.killpg(top.pid, signal.SIGKILL)
            top.wait()
            while not all(is_collected(pid) for _title, pid in said):
                time.sleep(0.05)


def is_collected(pid: int) -> bool:
    """By init, or here, where another test has made this process the one that collects."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    return not os.path.exists(f"/proc/{pid}")


def named(*titles: str) -> list:
    return [[title, {}, []] for title in titles]


def found_below(top: int) -> list[dict]:
    rows, _ = processes_of(Root(), {"pids": [top]})
    return [row for row in rows if row["rank"] is not None]


def numbered(top: int, pids: dict[str, int]) -> dict[str, tuple[int, int]]:
    """{title: (rank, world size)}."""
    titles = {pid: title for title, pid in pids.items()}
    rows = found_below(top)
    return {titles[row["pid"]]: (row["rank"], row["world_size"]) for row in rows}


@pytest.mark.parametrize(
    ("engine", "workers"),
    [
        ("VLLM::EngineCore", ["VLLM::Worker_TP0", "VLLM::Worker_TP1", "VLLM::Worker_TP2"]),
        (
            "VLLM::EngineCore_DP1",
            [f"VLLM::Worker_DP1_PP{p}_TP{t}_EP{2 + t}" for p in (0, 1) for t in (0, 1)],
        ),
        ("python", [f"sglang::scheduler_PP{p}_TP{t}" for p in (0, 1) for t in (0, 1)]),
        # attention by data parallel: tensor ranks are counted through
        (
            "sglang::data_parallel_controller",
            [f"sglang::scheduler_DP{t // 2}_TP{t}" for t in range(4)],
        ),
    ],
)
def test_workers_have_the_rank_of_their_place(engine, workers):
    with tree("python", [[engine, {}, named(*workers)]]) as (top, pids):
        found = numbered(top, pids)
        assert found == {title: (rank, len(workers)) for rank, title in enumerate(workers)}
        rows = found_below(pids[workers[0]])
        assert len({row["job"] for row in rows}) == 1 and len(rows) == len(workers)
        assert {row["engine"] for row in rows} == {pids[engine]}


def test_replicas_below_one_controller_are_jobs_of_their_own():
    titles = [f"sglang::scheduler_DP{d}_TP{t}" for d in (0, 1) for t in (0, 1)]
    with tree("sglang::data_parallel_controller", named(*titles)) as (top, pids):
        assert sorted(numbered(top, pids).values()) == [(0, 2), (0, 2), (1, 2), (1, 2)]
        assert len({row["job"] for row in found_below(top)}) == 2


def test_workers_below_a_fork_server_have_the_engine_above_it():
    fork_server = ["python", {}, named("VLLM::Worker_TP0", "VLLM::Worker_TP1")]
    with tree("VLLM::EngineCore", [fork_server]) as (top, _pids):
        assert {row["engine"] for row in found_below(top)} == {top}


@pytest.mark.parametrize(
    "titles",
    [
        ["gunicorn: worker [site]", "gunicorn: worker [site]2"],
        ["celery::worker_W0", "celery::worker_W1"],
        ["ray::IDLE", "ray::RolloutWorker.sample"],
        ["VLLM::Worker", "VLLM::APIServer_0"],
        ["VLLM::Worker_TP", "VLLM::Worker_TPx"],
        ["VLLM::Worker_TP\u00b2", "VLLM::Worker_TP99999"],
        ["VLLM::Worker_TP9999_PP9999", "VLLM::Worker_TP1"],
        ["VLLM::Worker_TP0"],
        ["VLLM::Worker_TP0 RANK=1", "VLLM::Worker_TP1\nx"],
    ],
)
def test_titles_of_others_and_hostile_ones_make_no_rank(titles):
    with tree("python", named(*titles)) as (top, _pids):
        assert found_below(top) == []


def test_the_servers_environment_counts_for_its_workers_and_makes_it_no_rank():
    """srun sets the variables of a rank for the server and whatever it starts."""
    srun = {
        "SLURM_PROCID": "0",
        "SLURM_STEP_NUM_TASKS": "1",
        "SLURM_JOB_ID": "4711",
        "UNHANG_WATCH": "off",
    }
    engine = ["VLLM::EngineCore", {}, named("VLLM::Worker_TP0", "VLLM::Worker_TP1")]
    with tree("python", [["tracker", srun, []], engine], srun) as (top, pids):
        rows = found_below(top)
        assert numbered(top, pids) == {"VLLM::Worker_TP0": (0, 2), "VLLM::Worker_TP1": (1, 2)}
        assert {row["settings"]["UNHANG_WATCH"] for row in rows} == {"off"}
        assert all("SLURM_JOB_ID=4711" in row["job"] for row in rows)


def test_ranks_of_other_jobs_stay_beside_an_engine():
    """Of mpirun, and the rank of torchrun that has started the engine."""
    rank = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": f"test-{os.getpid()}"}
    mpi = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "MASTER_ADDR": "mpi"}
    engine = ["VLLM::EngineCore", {}, named("VLLM::Worker_TP0", "VLLM::Worker_TP1")]
    with tree("python", [["train", rank, [engine]], ["train", {**rank, "RANK": "1"}, []]]) as (
        top,
        _pids,
    ):
        rows = found_below(top)
        assert [(row["rank"], row["world_size"]) for row in rows] == [(0, 2), (1, 2)] * 2
        assert len({row["job"] for row in rows}) == 2
    with tree("python", [["solve", mpi, []], engine]) as (top, pids):
        assert numbered(top, pids)["solve"] == (0, 2)


def test_watch_all_finds_an_engine_and_forgets_it_when_it_ends():
    node, named_here = Node(Root(), []), named("VLLM::Worker_TP0", "VLLM::Worker_TP1")
    with tree("VLLM::EngineCore", named_here) as (top, pids):
        line = moment_of(node, None, 0.0, 1.0)
        [job] = [one["job"] for one in line["came"] if one["job"].endswith(f" {top}")]
        ranks = {row["pid"]: row["rank"] for row in line["jobs"][job] if "rank" in row}
        assert ranks == {pids["VLLM::Worker_TP0"]: 0, pids["VLLM::Worker_TP1"]: 1}
    assert job in moment_of(node, None, 12.0, 1.0)["ended"]
