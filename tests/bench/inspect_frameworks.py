"""Jobs of frameworks on two GPUs, each looked at while it trains and while it hangs: the rank, the
place, the framework as `unhang inspect` names them.

    python3 tests/bench/inspect_frameworks.py --out FOLDER [--py-spy PATH] [--only NAME,...]

Needs two GPUs, torch, and what is to be tried of accelerate, lightning and jax; one that is not
installed is said so. All jobs run at the same time, which says nothing about speed. Writes
FOLDER/frameworks.json and evidence-frameworks.tar.gz. NVLink multicast stays off.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from inspect_bench import look_from_outside, pack
from inspect_parts import HERE, say

from unhang.jobs.inspect.verdict import inspection_of
from unhang.jobs.watch.live import end_job

NAMES = {"accelerate": "accelerate", "lightning": "lightning", "fsdp2": "torch", "jax": "jax"}
PORT, HEALTHY_S, START_S = 29850, 40.0, 150.0
HANDLERS = ("ping", "fr_trace_json", "dump_nccl_trace_json", "dump_nccl_trace_pickle", "pyspy_dump")


class Job:
    """The processes of one job, and what they write."""

    def __init__(self, name: str, number: int, folder: Path) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        self.processes = [
            self._start(command, extra, number) for command, extra in commands_of(name, number)
        ]

    def _start(self, command: list[str], extra: dict[str, str], number: int) -> subprocess.Popen:
        environment = {
            **os.environ,
            "NCCL_NVLS_ENABLE": "0",
            "NCCL_RAS_ADDR": f"localhost:{28300 + number}",
            "OMP_NUM_THREADS": "2",
            **extra,
        }
        argv = [*command, str(HERE / "framework_job.py"), self.name, str(HEALTHY_S)]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                argv,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait_for(self, word: str, until: float) -> bool:
        while time.monotonic() < until and all(
            process.poll() is None for process in self.processes
        ):
            if word in self.log.read_text(errors="replace"):
                return True
            time.sleep(0.2)
        return False

    def end(self) -> None:
        for process in self.processes:
            end_job(process.pid, 3.0)
            process.wait()


def commands_of(name: str, number: int) -> list[tuple[list[str], dict[str, str]]]:
    """What starts the job: one launcher, or for jax its processes as mpirun would start them."""
    port = str(PORT + 2 * number)
    if name == "jax":
        mpi = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
        shared = {
            "OMPI_COMM_WORLD_SIZE": "2",
            "FRAMEWORK_JOB_COORDINATOR": f"127.0.0.1:{port}",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }
        return [([sys.executable], {**shared, **dict.fromkeys(mpi, str(rank))}) for rank in (0, 1)]
    if name == "accelerate":
        launch = (
            "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend"
            " no --main_process_port"
        )
        return [([sys.executable, "-m", "accelerate.commands.launch", *launch.split(), port], {})]
    extra = (
        {"FRAMEWORK_JOB_DEBUG_PORT": str(PORT + 2 * number + 1), "TORCH_FR_BUFFER_SIZE": "2000"}
        if name == "fsdp2"
        else {}
    )
    return [
        (
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--nproc-per-node=2",
                f"--master-port={port}",
            ],
            extra,
        )
    ]


def looked_at(job: Job, moment: str, py_spy: str | None) -> tuple[dict, dict]:
    begun = time.monotonic()
    document = look_from_outside(job.processes[0].pid, [], py_spy)
    seconds = time.monotonic() - begun
    found = inspection_of([document])
    row = {
        "framework": job.name, "moment": moment, "seconds": round(seconds, 2),
        "state": found["state"], "says": found["headline"],
        "suspects": [[one["rank"], one["why"]] for one in found["suspects"]],
        "ranks": [[one["rank"], one["launcher"], one["framework"]] for one in document["ranks"]],
    }  # fmt: skip
    row["right"] = (
        found["state"] == "running"
        if moment == "trains"
        else found["state"] == "hung" and [one["rank"] for one in found["suspects"]] == [1]
    )
    say(json.dumps(row))
    return row, document


def answers_of_debug_server(document: dict) -> dict[str, str]:
    """What torch's debug server of each rank answers: {rank/port/handler: text}."""
    found = {}
    for row in document["ranks"]:
        for port in listening(row["pid"]):
            for handler in HANDLERS:
                url = f"http://localhost:{port}/handler/{handler}"
                try:
                    with urllib.request.urlopen(
                        urllib.request.Request(url, data=b"", method="POST"), timeout=5
                    ) as answer:
                        found[f"{row['rank']}/{port}/{handler}"] = answer.read(1 << 20).decode(
                            "utf-8", "backslashreplace"
                        )
                except (OSError, ValueError, http.client.HTTPException) as problem:
                    found[f"{row['rank']}/{port}/{handler}"] = f"none: {problem}"
                    if handler == "ping":
                        break
    return found


def listening(pid: int) -> list[int]:
    held = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            held.add(os.readlink(path))
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return sorted(
        {
            int(row[1].rpartition(":")[2], 16)
            for row in rows
            if row[3] == "0A" and f"socket:[{row[9]}]" in held
        }
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--py-spy")
    parser.add_argument("--only", default=",".join(NAMES))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows, texts, jobs = [], {}, []
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        for number, name in enumerate(given.only.split(",")):
            if importlib.util.find_spec(NAMES[name]) is None:
                rows.append({"framework": name, "moment": "not installed"})
                continue
            jobs.append(Job(name, number, Path(folder)))
            stack.callback(jobs[-1].end)
        until = time.monotonic() + START_S
        for word, moment in (("step 20", "trains"), ("happens", "hangs")):
            for job in jobs:
                if not job.wait_for(word, until):
                    rows.append(
                        {
                            "framework": job.name,
                            "moment": moment,
                            "error": job.log.read_text(errors="replace")[-1500:],
                        }
                    )
                    say(json.dumps(rows[-1]))
                    continue
                time.sleep(3 if moment == "hangs" else 0)
                row, document = looked_at(job, moment, given.py_spy)
                rows.append(row)
                texts[f"frameworks/{job.name}-{moment}.json"] = json.dumps(document)
                if job.name == "fsdp2" and moment == "hangs":
                    texts["frameworks/debug-server.json"] = json.dumps(
                        answers_of_debug_server(document)
                    )
        (given.out / "frameworks.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
        pack(given.out / "evidence-frameworks.tar.gz", texts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
