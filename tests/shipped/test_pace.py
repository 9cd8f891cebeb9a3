"""Fifty looks at a job that runs: what is kept of RAS's answers, and one whole `inspect --slow` of
processes that answer as NCCL does, with a fake driver's library."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from fakes.nvml import build_fake_nvml, write_profile
from fakes.nvml_runs import H200X2, PROJECT, write_recording

from unhang_node.job.pace import Launches
from unhang_node.job.parse.ras import parse_ras

TEXT = "\n".join(
    [
        "NCCL version 2.27.3 compiled with CUDA 12.9",
        "Job summary", "===========", "",
        "#0-0 (abc) MISMATCH",
        "  Communicator ranks have different AllReduce operation counts",
        "  1 ranks have launched up to operation 472",
        "  Rank 1 has launched up to operation {behind}"
        " -- GPU 1 managed by process 11 on node n1",
    ]
)  # fmt: skip


def answer(*launched: int, missing: bool = False) -> dict:
    ranks = [
        {
            "rank": rank, "host": "n1", "pid": 10 + rank, "nvml_dev": rank,
            "collective_counts": {"AllReduce": count},
        }
        for rank, count in enumerate(launched)
    ]  # fmt: skip
    gone = [{"rank": 9, "host": "n1", "pid": 19}] if missing else []
    row = {"hash": "0x1", "size": 2, "ranks": ranks, "missing_ranks": gone}
    return parse_ras(json.dumps({"nccl_version": "2.28.9", "communicators": [row]}))


def rows_of(*answers: dict) -> tuple[int, list[dict]]:
    launches = Launches()
    for one in answers:
        launches.add(one)
    return launches.looks, launches.rows()


def test_a_slow_rank_waits_at_many_counts_and_a_checkpoint_at_one():
    looks, (slow,) = rows_of(*(answer(at + 1, at) for at in range(10)), answer(10, 10))
    assert (looks, slow["launched"], slow["total"]) == (11, 9, 10)
    assert [one[4:] for one in slow["ranks"]] == [[0, 0, 0], [10, 10, 1]]
    _, (saving,) = rows_of(*[answer(7, 6)] * 10, answer(8, 8))
    assert [one[4:] for one in saving["ranks"]] == [[0, 0, 0], [10, 1, 10]]


def test_a_rank_that_has_launched_nothing_of_an_operation_is_behind():
    _, (row,) = rows_of(answer(3, 0))
    assert row["ranks"][1] == [1, "n1", 11, 1, 1, 1, 1]


def test_looks_in_which_a_rank_did_not_answer_are_counted():
    assert rows_of(answer(1, 1, missing=True), answer(2, 2))[1][0]["missing"] == 1


@pytest.mark.parametrize(
    "ranks",
    [
        [{"rank": 0, "collective_counts": {"AllReduce": -5}}, {"rank": "x", "host": ["y"]}],
        [{"rank": 0, "host": "n1", "pid": 10, "collective_counts": [1]}] * 2,
        [{"rank": 0, "host": "n1" * 999, "pid": 2**70, "collective_counts": {"x" * 999: 2**60}}],
        ["rank", None, 7],
    ],
)
def test_what_a_lying_service_counts_is_no_more_than_numbers(ranks):
    row = {"hash": {"a": 1}, "size": "2", "ranks": ranks, "missing_ranks": "none"}
    text = json.dumps({"nccl_version": ["x"], "communicators": [row, 3]})
    _, rows = rows_of(*[parse_ras(text)] * 3)
    assert all(one["launched"] == 0 for one in rows) and len(json.dumps(rows)) < 1000


def test_a_job_of_very_many_ranks_stays_small():
    _, rows = rows_of(
        {
            "version": "2.28.9", "form": "json",
            "communicators": [
                {
                    "hash": str(at), "size": 3000, "missing": [], "counts": [],
                    "members": [[rank, "n1", rank, 0] for rank in range(3000)],
                }
                for at in range(9)
            ],
        }
    )  # fmt: skip
    assert len(rows) == 1


def test_the_text_form_names_the_one_that_is_behind():
    _, (row,) = rows_of(*(parse_ras(TEXT.format(behind=at)) for at in range(460, 470)))
    assert [one[4] for one in row["ranks"] if one[2] == 11] == [10]


# Rank 1 is behind in nine of ten answers, and each answer is some collectives later.
RANK_0 = """
import json, os, socket, sys, threading
port, other = int(sys.argv[1]), int(sys.argv[2])
asked = [0]
def row(rank, pid, count):
    return {"rank": rank, "host": socket.gethostname(), "pid": pid, "nvml_dev": rank,
            "status": {"init_state": 0, "async_error": 0}, "collective_counts": {"AllReduce": count}}
def answer(link):
    with link:
        link.recv(4096)
        link.sendall(b"OK\\n")
        link.recv(4096)
        asked[0] += 1
        ranks = [row(0, os.getpid(), 100 * asked[0]), row(1, other, 100 * asked[0] - bool(asked[0] % 10))]
        text = json.dumps({"nccl_version": "2.28.9", "communicators":
                           [{"hash": "0x1", "size": 2, "ranks": ranks, "missing_ranks": []}]})
        link.sendall(b"OK\\n" + text.encode() + b"\\n")
server = socket.create_server(("127.0.0.1", port))
print("ready", flush=True)
while True:
    threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()
"""
RANK_1 = "import time\nprint('ready', flush=True)\ntime.sleep(900)"

# unhang, on a machine that may be busy
PATIENT = """
import sys
from unhang.cli import main
from unhang_node.job import pace, ras
pace.MOST_S = ras.FIRST_WORD_S = ras.ANSWER_S = 60.0
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def job():
    """(pids, port) of two processes that say that they are ranks."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    started: list[subprocess.Popen[str]] = []
    try:
        for rank, code in ((1, RANK_1), (0, RANK_0)):
            settings = {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
                "MASTER_ADDR": f"pace-{os.getpid()}", "NCCL_RAS_ADDR": f"localhost:{port}",
            }  # fmt: skip
            started.append(
                subprocess.Popen(
                    [sys.executable, "-c", code, str(port), str(started[0].pid if started else 0)],
                    env={**os.environ, **settings}, stdout=subprocess.PIPE, text=True,
                )
            )  # fmt: skip
            assert started[-1].stdout and started[-1].stdout.readline() == "ready\n"
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.communicate()


# The same look by the watcher, after two seconds of progress.
WATCHER = """
import argparse, sys
from dataclasses import replace
from unhang.jobs.commands import watch
from unhang.jobs.commands.watch_one import say, watched
from unhang.jobs.watch.record import Record
from unhang_node.job import pace, ras
pace.MOST_S = ras.FIRST_WORD_S = ras.ANSWER_S = 60.0
parser = argparse.ArgumentParser()
watch.add_arguments(parser)
arguments = parser.parse_args(sys.argv[1:])
job = replace(watch.job_of(arguments.pid, arguments, is_ours=False), slow_every_s=2.0)
watched(job, watch.outputs_of(arguments, say), Record("job", "n"))
"""


@pytest.fixture
def environment(tmp_path):
    """Of a node with two GPUs, the second of which is idle."""
    build_fake_nvml(str(tmp_path))
    recording = write_recording(
        tmp_path, H200X2,
        devices={
            str(at): {"nvmlDeviceGetUtilizationRates": {"gpu": busy, "memory": 3}}
            for at, busy in ((0, 99), (1, 11))
        },
    )  # fmt: skip
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(PROJECT / name) for name in ("tools", "module_utils")),
        "LD_LIBRARY_PATH": str(tmp_path),
        "UNHANG_FAKE_NVML_PROFILE": write_profile(str(recording), str(tmp_path / "profile")),
    }


def test_the_slow_rank_of_a_job_that_runs_is_named_in_ten_seconds(job, environment):
    words = [word for pid in job for word in ("--pid", str(pid))]
    done = subprocess.run(
        [sys.executable, "-P", "-c", PATIENT, "inspect", "--slow", *words, "-o", "json"],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert (done.returncode, found["state"], [one["rank"] for one in found["suspects"]]) == (
        1,
        "slow",
        [1],
    ), found["headline"]
    rows = found["pace"]["ranks"]
    assert [row["busy"] for row in rows] == [99, 11] and rows[0]["behind"] == 0
    assert rows[1]["behind"] >= 0.8 * found["pace"]["answered"] > 0
    assert None not in [row["run_queue"] for row in rows]


@pytest.mark.parametrize("strangers", [0, 1])
def test_the_driver_speaks_for_a_job_alone_on_its_gpus(job, environment, tmp_path, strangers):
    """Both GPUs move memory: the job's own kernels, or the stranger's."""
    others = [{"pid": os.getpid(), "usedGpuMemory": 1 << 30}] * strangers
    recording = write_recording(
        tmp_path, H200X2,
        devices={
            str(at): {
                "nvmlDeviceGetUtilizationRates": {"gpu": 99, "memory": 6},
                "nvmlDeviceGetComputeRunningProcesses_v3": [
                    {"pid": pid, "usedGpuMemory": 1 << 30}, *others
                ],
            }
            for at, pid in enumerate(job)
        },
    )  # fmt: skip
    write_profile(str(recording), environment["UNHANG_FAKE_NVML_PROFILE"])
    words = [word for pid in job for word in ("--pid", str(pid))]
    done = subprocess.run(
        [sys.executable, "-P", "-c", PATIENT, "inspect", *words, "-o", "json"],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    works = json.loads(done.stdout)["sources"]["works"]
    assert ("the driver" in works) is not bool(strangers)


def test_the_watcher_names_it_when_two_looks_agree_and_watches_on(job, environment):
    argv = ["--pid", str(job[1]), "--slow", "--every", "0.2", "--no-progress", "60"]
    with subprocess.Popen(
        [sys.executable, "-P", "-c", WATCHER, *argv],
        env=environment, stderr=subprocess.PIPE, text=True,
    ) as watcher:  # fmt: skip
        assert watcher.stderr
        stop = threading.Timer(240, watcher.kill)
        stop.start()
        shown: list[str] = []
        for line in watcher.stderr:
            shown.append(line)
            if "what to do" in line:
                os.kill(job[1], signal.SIGKILL)
        stop.cancel()
        assert watcher.wait(60) == 0, shown
    text = " ".join("".join(shown).split())
    assert "2 ranks on" in shown[0] and "hung" not in text and "no collective" not in text
    assert "slow: rank 1 (" in text and "its GPU is busy 11 %" in text
    assert "its stack was not read" in text  # py-spy is not run beside a job that trains
