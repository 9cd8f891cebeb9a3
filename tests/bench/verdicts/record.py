"""Runs the scenes of scenes.py on this machine and keeps what people bring of each.

    python3 tests/bench/verdicts/record.py --out FOLDER [--round N] [--only NAME,...]
    [--budget-s 540] [--world 8] [--host-size 4] [--at-once 3] [--backend gloo]

Needs torch and py-spy on the path, nothing of this project. Eight ranks stand on four GPUs as two
hosts, on two as four (NCCL_HOSTID), which talk through loopback; NVLink multicast stays off. Every
rank has its own session, and only these are ended. FOLDER/SHAPE-KIND.tar.xz has truth.json,
log.txt, dumps/, stacks/ (text and JSON of py-spy), ras.txt and ras.json, without this machine's
names and paths. In round 3 others compute on the same GPUs and all processors. Exit code 1: a scene
failed, or the budget ended before all were recorded.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from evidence import Machine, ask_ras, pack, stacks_of
from scenes import BESIDE, ROUNDS, Scene, all_scenes

HERE = Path(__file__).resolve().parent
START_S, ENDS_S = 90.0, 20.0
FIRST_LOOK_S = 3.0  # after the fault, well before the watchdog's PG_TIMEOUT_S of train.py
STRANGERS = """
import torch
all = [torch.ones(4096, 4096, device=one) for one in range(torch.cuda.device_count())]
while True:
    for one in all:
        one @ one
        torch.cuda.synchronize(one.device)
"""
SCENE_S = 45.0  # what one scene takes; none is begun with less of the budget left


@dataclass(frozen=True)
class Setup:
    """python: what runs the job; slow: how many times longer than on the GPU machine all waits
    may take."""

    python: str
    backend: str
    world: int
    out: Path
    until: float
    slow: float
    host_size: int

    def host_of(self, rank: int) -> str:
        return f"gpu0{rank // self.host_size + 1}"


@dataclass(frozen=True)
class Job:
    scene: Scene
    folder: Path
    ras_port: int
    ranks: list[subprocess.Popen[bytes]]
    lines: list[tuple[int, str]]

    def is_gone(self) -> bool:
        return all(rank.poll() is not None for rank in self.ranks)


@contextlib.contextmanager
def strangers(setup: Setup, round_: int) -> Iterator[None]:
    """Of each processor one that is busy, and one for all GPUs."""
    scripts = (STRANGERS, *["while True: pass"] * (os.cpu_count() or 1)) * (round_ == BESIDE)
    others = [subprocess.Popen([setup.python, "-c", script]) for script in scripts]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def environment(setup: Setup, scene: Scene, slot: int, folder: Path, rank: int) -> dict[str, str]:
    dumps = str(folder / "dumps" / "_dump_")
    return {
        **os.environ,
        "TRAIN_SCENE": json.dumps(
            [scene.shape, scene.kind, scene.faulted, scene.step, setup.backend, str(folder)]
        ),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % setup.host_size),
        "WORLD_SIZE": str(setup.world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(29640 + slot),
        "PG_TIMEOUT_S": str(10 * setup.slow),
        "SAVE_S": str(14 * setup.slow),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "NCCL_HOSTID": setup.host_of(rank),
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_IB_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_DEBUG": scene.nccl_debug,
        "NCCL_DEBUG_SUBSYS": "INIT",
        "NCCL_RAS_ADDR": f"localhost:{28120 + slot}",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        # without it no dump distinguishes an operation that runs from one that is queued
        "TORCH_NCCL_ENABLE_TIMING": "1" if scene.kind == "kernel" else "0",
        "TORCH_FR_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": dumps,
        "TORCH_FR_DUMP_TEMP_FILE": dumps,
    }


def start(setup: Setup, scene: Scene, slot: int, folder: Path) -> Job:
    (folder / "dumps").mkdir(parents=True)
    (folder / "project").mkdir()
    script = shutil.copy(HERE / "train.py", folder / "project" / "train.py")
    ranks = [
        subprocess.Popen(
            [setup.python, script],
            env=environment(setup, scene, slot, folder, rank),
            cwd=folder / "project",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        for rank in range(setup.world)
    ]
    job = Job(scene, folder, 28120 + slot, ranks, [])
    threading.Thread(target=read_lines, args=(job,), daemon=True).start()
    return job


def read_lines(job: Job) -> None:
    """All ranks' lines in the order in which they arrive, until each has closed its end."""
    with selectors.DefaultSelector() as watched:
        rests = {}
        for rank, process in enumerate(job.ranks):
            watched.register(process.stdout, selectors.EVENT_READ, rank)
            rests[rank] = b""
        while watched.get_map():
            for key, _ in watched.select():
                rank, piece = key.data, os.read(key.fd, 1 << 16)
                if not piece:
                    watched.unregister(key.fileobj)
                *whole, rests[rank] = (rests[rank] + piece).split(b"\n")
                job.lines.extend((rank, line.decode("utf-8", "replace")) for line in whole)


def wait_for(path: Path, job: Job, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > until or job.is_gone():
            return path.exists()
        time.sleep(0.05)
    return True


def end(job: Job) -> dict[int, str]:
    """{rank: how it ended}. Each session is this job's own, so its workers go with it."""
    ended = {}
    for rank, process in enumerate(job.ranks):
        code = process.poll()
        ended[rank] = "ended by the recorder" if code is None else f"exit code {code}"
        with contextlib.suppress(ProcessLookupError):  # all of it may have ended
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return ended


def look(setup: Setup, job: Job) -> None:
    """What can be asked of a job that runs or hangs; nothing of it stops a rank."""
    pids = {rank: process.pid for rank, process in enumerate(job.ranks)}
    with ThreadPoolExecutor(2) as pool:
        stacks = pool.submit(stacks_of, pids, job.folder, setup.slow)
        if setup.backend == "nccl":
            ask_ras(job.ras_port, job.folder)
        stacks.result()


def record(setup: Setup, scene: Scene, slot: int) -> str:
    """One line about how it went."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="verdict-") as name:
        folder = Path(name)
        job = start(setup, scene, slot, folder)
        try:
            happened = scene.kind == "healthy-finished" or wait_for(
                folder / "fault", job, START_S * setup.slow
            )
            if happened and scene.kind != "healthy-finished":
                time.sleep(FIRST_LOOK_S)
                look(setup, job)
                if scene.faulted is None or setup.backend == "gloo":
                    (folder / "look").touch()
                    for rank in range(setup.world):
                        wait_for(folder / "dumps" / f"_dump_{rank}", job, 5.0 * setup.slow)
                (folder / "stop").touch()
            wait_for_end(setup, job)
            time.sleep(0.2)  # the thread that reads takes the last lines
            lines = list(job.lines)  # not what others say of the recorder's end
        finally:
            ended = end(job)
        size = pack(job, lines, ended, Machine.of(setup.python, folder, setup.host_of), setup)
    return (
        f"{scene.name}: {'recorded' if happened else 'DID NOT BEGIN'}, {size} bytes,"
        f" {time.monotonic() - began:.0f} s, {sorted(set(ended.values()))}"
    )


def wait_for_end(setup: Setup, job: Job) -> None:
    """Until all have ended, or have dumped, or the limit. Who is stopped or killed does neither."""
    limit = START_S if job.scene.kind == "healthy-finished" else ENDS_S
    until = time.monotonic() + limit * setup.slow
    dumping = setup.world - (job.scene.kind in ("stopped", "killed"))
    while not job.is_gone() and time.monotonic() < until:
        dumps = list((job.folder / "dumps").glob("_dump_*"))
        if job.scene.faulted is not None and len(dumps) >= dumping:
            time.sleep(1.5)
            return
        time.sleep(0.1)


def run_all(setup: Setup, scenes: list[Scene], at_once: int) -> int:
    """How many were not recorded."""
    slots: queue.SimpleQueue[int] = queue.SimpleQueue()
    for slot in range(at_once):
        slots.put(slot)

    def one(scene: Scene) -> bool:
        if time.monotonic() > setup.until - SCENE_S * setup.slow:
            return False
        slot = slots.get()
        try:
            line = record(setup, scene, slot)
        finally:
            slots.put(slot)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
        return ": recorded" in line

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(one, scenes)).count(False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--only", help="names with commas")
    parser.add_argument("--not", dest="without", default="", help="names with commas")
    parser.add_argument("--round", type=int, default=1, choices=tuple(ROUNDS))
    parser.add_argument("--world", type=int, default=8)
    parser.add_argument("--host-size", type=int, default=4, help="GPUs of this machine")
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--budget-s", type=float, default=540.0)
    parser.add_argument("--backend", default="nccl", choices=("nccl", "gloo"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--slow", type=float, default=1.0, help="factor for all waits")
    given = parser.parse_args()
    known = {scene.name: scene for scene in all_scenes(given.world, given.round)}
    names = given.only.split(",") if given.only else list(known)
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.stdout.write(f"expected names of scenes.py, found {', '.join(unknown)}\n")
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    setup = Setup(
        given.python,
        given.backend,
        given.world,
        given.out.resolve(),
        time.monotonic() + given.budget_s,
        given.slow,
        given.host_size,
    )
    chosen = [known[name] for name in names if name not in given.without.split(",")]
    chosen.sort(key=lambda scene: scene.faulted is not None)  # the short ones first
    with strangers(setup, given.round):
        return 1 if run_all(setup, chosen, given.at_once) else 0


if __name__ == "__main__":
    sys.exit(main())
