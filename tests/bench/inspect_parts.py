"""A job with NCCL for inspect_bench.py, and what is done to it: it is started, sampled, its threads
frozen, its GPU shared with a stranger."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unhang_node.base.context import Context
from unhang_node.base.root import Root
from unhang_node.job.finding import read_ranks
from unhang_node.job.look import OPTIONS
from unhang_node.job.samples import gpu_samples, header_of, process_samples, ras_sample

HERE = Path(__file__).resolve().parent
HEALTHY_S = 5.0
PTRACE_ATTACH, PTRACE_DETACH = 16, 17


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def started(
    scene: str,
    number: int,
    arguments: argparse.Namespace,
    healthy_s: float = HEALTHY_S,
) -> Iterator[tuple[list[subprocess.Popen], Path]]:
    of_two_hosts = scene == "path" or arguments.gpus == 1
    folder = Path(tempfile.mkdtemp(prefix="inspect-"))
    processes = []
    for rank in (0, 1) if scene != "init" else (0,):
        environment = {
            **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29700 + number),
            **({"NCCL_HOSTID": f"host{rank}"} if of_two_hosts else {}), "NCCL_SOCKET_IFNAME": "lo",
            "NCCL_IB_DISABLE": "1", "NCCL_NVLS_ENABLE": "0",
            "INSPECT_JOB_GPUS": str(arguments.gpus),
            "NCCL_SET_THREAD_NAME": str(int(scene == "path")), "INSPECT_JOB_FOLDER": str(folder),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "OMP_NUM_THREADS": "2",
            "NCCL_RAS_ADDR": f"localhost:{28100 + number}",
        }  # fmt: skip
        with (folder / f"log-{rank}").open("wb") as log:
            argv = [
                sys.executable,
                "-W",
                "ignore",
                str(HERE / "inspect_job.py"),
                scene,
                str(healthy_s),
                arguments.backend,
            ]
            processes.append(
                subprocess.Popen(
                    argv,
                    env=environment,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
    try:
        yield processes, folder
    finally:
        for process in processes:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(folder: Path, word: str, limit_s: float) -> bool:
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if word in (folder / "log-0").read_text(encoding="utf-8", errors="replace"):
            return True
        time.sleep(0.1)
    return False


def steps_in(folder: Path) -> int:
    words = (folder / "log-0").read_text(encoding="utf-8", errors="replace").split()
    return max(
        (
            int(word)
            for before, word in itertools.pairwise(words)
            if before == "step" and word.isdigit()
        ),
        default=0,
    )


def load_pynvml() -> Any:
    import pynvml

    return pynvml


@contextlib.contextmanager
def sampling(pids: list[int], trace: list[dict], every_s: float = 1.0) -> Iterator[None]:
    """Samples the job into `trace` until the end of the block."""
    context = Context(Root(), {**OPTIONS, "pids": pids, "skipped": []}, (), None)
    ranks = [row for _, fields, _, *_ in read_ranks(context) for row in fields.get("ranks", [])]
    trace.append(header_of(os.uname().nodename, ranks, every_s, time.time(), []))
    asking, ended = open_gpus(), threading.Event()

    def sample() -> None:
        begun = time.monotonic()
        while not ended.is_set():
            t = round(time.monotonic() - begun, 2)
            trace.append(ras_sample(Root(), ranks, t))
            trace.extend(process_samples(Root(), ranks, t))
            trace.extend(gpu_samples(asking, t, {}))
            ended.wait(max(0.05, every_s - (time.monotonic() - begun - t)))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)


def open_gpus() -> Any:
    from unhang_node.base.context import no_mark
    from unhang_node.base.nvml.calls import Asking
    from unhang_node.base.nvml.live import LiveSession
    from unhang_node.base.section import Unread

    try:
        session = LiveSession(load_pynvml())
        session.nvmlInit()
    except Exception as problem:
        say(f"no driver: {problem}")
        return None
    return Asking(session, no_mark, Unread())


@contextlib.contextmanager
def frozen_threads(pid: int) -> Iterator[None]:
    """Stops NCCL's threads that move data, and only these: then nothing that was launched arrives,
    as behind a link that is dead."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    names = {
        int(path.name): (path / "comm").read_text().strip()
        for path in Path(f"/proc/{pid}/task").iterdir()
    }
    say(f"threads: {sorted(set(names.values()))}")
    held = [tid for tid, name in names.items() if "Progress" in name]
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:  # a tracer is a thread
        for tid in held:
            if libc.ptrace(PTRACE_ATTACH, tid, None, None):
                say(f"ptrace of {tid}: {os.strerror(ctypes.get_errno())}")
            else:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(tid, 0x40000000)  # __WALL
        ready.set()
        done.wait()
        for tid in held:
            libc.ptrace(PTRACE_DETACH, tid, None, None)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    ready.wait(5)
    try:
        yield
    finally:
        done.set()
        thread.join(5)


@contextlib.contextmanager
def crowded(gpu: int) -> Iterator[None]:
    """A program that is no rank of the job computes on the GPU."""
    argv = [sys.executable, "-W", "ignore", str(HERE / "inspect_job.py"), "alone", str(gpu), "nccl"]
    program = subprocess.Popen(
        argv,
        env={
            name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")
        },
    )
    try:
        yield
    finally:
        program.kill()
        program.wait()
