"""What PyTorch and NCCL print when a job fails: runs the jobs of failure_scenes.yml on this
machine's GPUs and keeps a log of each.

    python3 tests/bench/record_failures.py --out FOLDER [--only NAME,...] [--scenes FILE] [--at-once
    N]

Needs PyYAML, torchrun on the path, and two GPUs (another FILE may take more). Six jobs go on at a
time. NVLink multicast stays off (NCCL_NVLS_ENABLE=0); mounts are made in name spaces of their own;
each job and its children are ended by their process group.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

SCENES = Path(__file__).with_name("failure_scenes.yml")
LIMIT_S = 75.0
GRACE_S = 40.0
AT_ONCE = 6


def record(name: str, scene: dict[str, Any], every: dict[str, Any], work: Path, out: Path) -> str:
    """One line: the scene, how it ended, and after how many seconds."""
    folder = work / name
    folder.mkdir(parents=True)
    script = folder / "train.py"
    script.write_text((every["head"] + scene["body"]).replace("{w}", str(work)), encoding="utf-8")
    place = {key: value.replace("{w}", str(work)) for key, value in scene.get("env", {}).items()}
    environment = {
        "OMP_NUM_THREADS": "1",
        **os.environ,
        "NCCL_NVLS_ENABLE": "0",
        "PYTHONUNBUFFERED": "1",
        **place,
    }
    command = (
        (scene.get("before", "true") + "; " + scene.get("launch", every["launch"]))
        .replace("{w}", str(work))
        .replace("{f}", str(script))
    )
    began = time.monotonic()
    with (out / f"{name}.txt").open("wb") as log:
        job = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        ended = _wait(job, scene.get("signal_after_s", scene.get("limit_s", LIMIT_S)))
    return f"{name}: {ended}, {time.monotonic() - began:.1f} s"


def _wait(job: subprocess.Popen[bytes], limit_s: float) -> str:
    try:
        return f"exit code {job.wait(limit_s)}"
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGTERM)
    try:
        return f"ended by SIGTERM, {job.wait(GRACE_S)}"
    except subprocess.TimeoutExpired:
        return "killed"
    finally:
        with contextlib.suppress(ProcessLookupError):  # all of it may have ended
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def main() -> int:
    """0 when all were recorded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--only", help="names with commas")
    parser.add_argument(
        "--scenes",
        type=Path,
        default=SCENES,
        help="file of jobs, in the form of failure_scenes.yml (default: that file)",
    )
    parser.add_argument(
        "--at-once",
        type=int,
        default=AT_ONCE,
        help="jobs that go on at a time (default: %(default)s)",
    )
    given = parser.parse_args()
    every = yaml.safe_load(given.scenes.read_text(encoding="utf-8"))
    names = given.only.split(",") if given.only else list(every["scenes"])
    unknown = sorted(set(names) - set(every["scenes"]))
    if unknown:
        sys.stdout.write(f"expected names of {given.scenes.name}, found {', '.join(unknown)}\n")
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(given.at_once) as pool:
        for line in pool.map(
            lambda name: record(name, every["scenes"][name], every, Path(work), given.out), names
        ):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
