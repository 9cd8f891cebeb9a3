"""A job of N ranks that trains for a while and then does one thing, for
tests/bench/inspect_bench.py: inspect_job.py SCENE SECONDS_OF_HEALTH BACKEND.

The last rank is the one that something happens to; in `slow` it is rank 0. `alone GPU` is no job: a
program that computes on that GPU without end.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.utils.file_baton

SCENE, HEALTHY_S, BACKEND = sys.argv[1], float(sys.argv[2]), sys.argv[3]
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"
# products of large matrices in a step
COMPUTES = {"crowded": 2, "full": 20, "speed": 8, "recorder": 14}
FOLDER = os.environ.get("INSPECT_JOB_FOLDER", "/tmp")
BUCKETS: list[torch.Tensor] = []


class Samples(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, at: int) -> torch.Tensor:
        if at > 8:
            read_from_dead_server()
        return torch.ones(4)


def read_from_dead_server() -> None:
    time.sleep(3600)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def load_forever() -> None:
    for _ in torch.utils.data.DataLoader(Samples(), batch_size=1, num_workers=2):
        pass


def compile_for(seconds: float) -> None:
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        number += 1
        lines = "\n".join(
            f"    x = torch.sin(x) * {number}.{at} + torch.roll(x, {at + 1})" for at in range(60)
        )
        space: dict = {"torch": torch}
        exec(f"def step(x):\n{lines}\n    return x", space)
        torch.compile(space["step"])(torch.ones(1 << 12, device=DEVICE))


def save_for(seconds: float) -> None:
    state, until = {"weights": torch.ones(1 << 27)}, time.monotonic() + seconds
    while time.monotonic() < until:
        torch.save(state, os.path.join(FOLDER, "checkpoint.pt"))


def restore_for(seconds: float) -> None:
    path, until = os.path.join(FOLDER, "checkpoint.pt"), time.monotonic() + seconds
    torch.save({"weights": torch.ones(1 << 27)}, path)
    while time.monotonic() < until:
        torch.load(path)


def import_for(seconds: float) -> None:
    with open(os.path.join(FOLDER, "large_package.py"), "w", encoding="ascii") as module:
        module.write(
            f"import time\nuntil = time.monotonic() + {seconds}\nwhile time.monotonic() < until:\n "
            "   sum(range(10000))\n"
        )
    sys.path.append(FOLDER)
    importlib.import_module("large_package")


def wait_for_build() -> None:
    baton = torch.utils.file_baton.FileBaton(os.path.join(FOLDER, "lock"))
    with open(os.path.join(FOLDER, "lock"), "w"):
        baton.wait()


def wait_for_a_child(*code: str) -> None:
    subprocess.run([sys.executable, "-c", *code], check=True)


def wait_for_a_lock() -> None:
    """Held by a process of its own, as a job that was stopped holds one."""
    holder = (
        "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX);"
        " print(flush=True); time.sleep(3600)"
    )
    path = os.path.join(FOLDER, "dataset.lock")
    with (
        subprocess.Popen([sys.executable, "-c", holder, path], stdout=subprocess.PIPE) as process,
        open(path, "w") as ours,
    ):
        process.stdout.readline()
        fcntl.flock(ours, fcntl.LOCK_EX)


def read_from_a_pipe() -> None:
    path = os.path.join(FOLDER, "samples.fifo")
    os.mkfifo(path)
    with open(path, "r+b", buffering=0) as pipe:
        pipe.read(1)


def poll_for_a_shard() -> None:
    while not os.path.exists(os.path.join(FOLDER, "next-shard")):
        time.sleep(5)


def server() -> socket.socket:
    """One that accepts nobody and answers nothing: the kernel takes the connection."""
    return socket.create_server(("127.0.0.1", 0))


def read_from_a_server() -> None:
    with server() as silent, socket.create_connection(silent.getsockname()) as client:
        client.recv(1)


def wait_for_connections() -> None:
    with server() as listening:
        listening.accept()


def wait_for_requests() -> None:
    """A server whose thread hands requests to the main thread."""
    requests: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=wait_for_connections, daemon=True).start()
    requests.get()


def download_for(seconds: float) -> None:
    """1 MB a second into memory, by little CPU."""
    code = (
        "import socket, sys, time; c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "while True: c.sendall(bytes(1 << 18)); time.sleep(0.25)"
    )
    with server() as listening:
        argv = [sys.executable, "-c", code, str(listening.getsockname()[1])]
        # not below this rank, as a server is not
        subprocess.run(["sh", "-c", '"$@" & ', "sh", *argv], check=True)
        connection, until = listening.accept()[0], time.monotonic() + seconds
        while time.monotonic() < until:
            connection.recv(1 << 20, socket.MSG_WAITALL)


def evaluate(seconds: float) -> float:
    total, until = 0.0, time.monotonic() + seconds
    weights = torch.randn(2048, 2048, device=DEVICE)
    while time.monotonic() < until:
        scores = weights @ weights
        total += float(scores.sum())
    return total


def long_step(seconds: float) -> None:
    size = 8192 if DEVICE == "cuda" else 512
    weights, until = torch.randn(size, size, device=DEVICE), time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(20):
            weights = torch.tanh(weights @ weights)
        wait()


LONG = {
    "loader": load_forever,
    "baton": wait_for_build,
    "compile": lambda: compile_for(40),
    "checkpoint": lambda: save_for(40),
    "restore": lambda: restore_for(40),
    "import": lambda: import_for(40),
    "evaluation": lambda: evaluate(40),
    "child": lambda: wait_for_a_child("import time; time.sleep(3600)"),
    "child-works": lambda: wait_for_a_child("while True: pass"),
    "flock": wait_for_a_lock,
    "fifo": read_from_a_pipe,
    "recv": read_from_a_server,
    "polls": poll_for_a_shard,
    "accept": wait_for_connections,
    "requests": wait_for_requests,
    "download": lambda: download_for(60),
}


def happen(x: torch.Tensor, world: int) -> None:
    """What happens to the last rank, once."""
    if SCENE == "never":
        time.sleep(3600)
    elif SCENE == "spin":
        while True:
            pass
    elif SCENE == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif SCENE == "inflight":
        dist.all_reduce(x)
        os.kill(os.getpid(), signal.SIGSTOP)
    elif SCENE == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif SCENE == "differ":
        dist.all_gather([torch.empty_like(x) for _ in range(world)], x)
        wait()
    elif SCENE == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    else:
        LONG[SCENE]()


def replay_but_the_last(x: torch.Tensor, is_last: bool) -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(x)
    graph.replay()
    wait()
    if is_last:
        queue.Queue().get()
    graph.replay()
    wait()


def save_in_a_thread(x: torch.Tensor, is_last: bool) -> None:
    """As an asynchronous save does, for which the main threads wait."""
    group = dist.new_group(backend="gloo")

    def write() -> None:
        if is_last:
            read_from_a_pipe()
        dist.all_reduce(x.cpu(), group=group)

    ThreadPoolExecutor(1, "writer").submit(write).result()


def dump_each_second(prefix: str) -> None:
    """The flight recorder's dump of this rank, as torch writes it when a collective times out."""
    place = prefix + os.environ["RANK"]
    while True:
        with open(place + ".new", "wb") as dump:
            dump.write(torch._C._distributed_c10d._dump_fr_trace())
        os.replace(place + ".new", place)
        time.sleep(1)


def compute(weights: torch.Tensor, times: int) -> None:
    for _ in range(times):
        torch.mm(weights, weights)
        if SCENE == "recorder":  # as many collectives as a model's buckets and layers
            for bucket in BUCKETS:
                dist.all_reduce(bucket)


def main() -> None:
    if DEVICE == "cuda":
        torch.cuda.set_device(
            int(os.environ.get("LOCAL_RANK", "0")) % int(os.environ.get("INSPECT_JOB_GPUS", "1"))
        )
    weights = (
        torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
        if SCENE in COMPUTES and DEVICE == "cuda"
        else None
    )
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(BACKEND)
    if SCENE == "first" and rank == world - 1:
        time.sleep(3600)
    x = torch.ones(1 << 16, device=DEVICE)
    BUCKETS.extend(torch.zeros(1 << 20, device=DEVICE) for _ in range(2))
    # NCCL's process group dumps by itself
    if BACKEND == "gloo" and "TORCH_FR_DUMP_TEMP_FILE" in os.environ:
        threading.Thread(
            target=dump_each_second, args=(os.environ["TORCH_FR_DUMP_TEMP_FILE"],), daemon=True
        ).start()
    dist.all_reduce(x)
    wait()
    begun, step, told = time.monotonic(), 0, False
    of_all = ("path", "longstep", "receive", "groups", "graph", "writer")
    healthy = ("healthy", "speed", "slow", "first", "init", "crowded", "full", *of_all)
    while True:
        # All ranks agree on when it happens: the largest clock decides.
        late = torch.tensor([time.monotonic() - begun], device=DEVICE)
        dist.all_reduce(late, op=dist.ReduceOp.MAX)
        due = float(late) > HEALTHY_S
        if due and not told:
            told = True
            say("happens")
            if rank == world - 1 and SCENE not in healthy and SCENE != "allgather":
                happen(x, world)
        if due and SCENE == "longstep":
            long_step(10)
        if due and SCENE == "allgather" and rank == world - 1:
            time.sleep(3600)
        if due and SCENE == "allgather":
            dist.all_gather([torch.empty_like(x) for _ in range(world)], x)
            wait()
        if due and SCENE == "receive":  # each waits for what the other sends afterwards
            dist.recv(x, (rank + 1) % world)
        if due and SCENE == "graph":  # RAS counts no replay of it
            replay_but_the_last(x, rank == world - 1)
        if due and SCENE == "writer":
            save_in_a_thread(x, rank == world - 1)
        if due and SCENE == "groups":
            groups = [dist.new_group(range(world)) for _ in range(2)]
            if rank == 0:
                dist.all_reduce(x, group=groups[0])
            dist.all_reduce(x, group=groups[1])
        if SCENE == "slow" and rank == 0:
            time.sleep(0.4)
        if weights is not None:
            compute(weights, COMPUTES[SCENE])
        dist.all_reduce(x)
        x.div_(world)
        wait()
        step += 1
        if rank == 0 and (step % 20 == 0 or SCENE in ("speed", "recorder")):
            say(f"step {step}")
        time.sleep(0 if SCENE in ("speed", "recorder") else 0.02)


def alone(gpu: int) -> None:
    weights = torch.randn(8192, 8192, device=f"cuda:{gpu}", dtype=torch.bfloat16)
    while True:
        compute(weights, 50)
        torch.cuda.synchronize(gpu)


if SCENE == "alone":
    alone(int(sys.argv[2]))
main()
