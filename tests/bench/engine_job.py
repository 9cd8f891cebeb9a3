"""An engine that serves, as vLLM 0.32 starts one: a server, below it the engine, below that two
workers, each with its title over its environment (what setproctitle does). A stand-in: its queue is
engine_parts/shm_broadcast.py and its collectives are gloo's.

    engine_job.py SCENE FOLDER [DIMENSION]

Scenes: idle; works (requests without end); code (worker 1 stands in a lock, worker 0 in a
collective); left (worker 1 stands in a collective that worker 0 has left out); after (worker 1
stands in a lock after its answer was taken). `ready` comes into FOLDER/said once a request was
answered, `happens` once the next one is in work.
"""

import ctypes
import datetime
import multiprocessing
import queue
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "engine_parts"))
from shm_broadcast import dequeue

WORLD = 2


def set_title(title: str) -> None:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[48])  # of the arguments, of the environment
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, title.encode(), len(title))
    ctypes.CDLL(None).prctl(15, title.encode(), 0, 0, 0)  # PR_SET_NAME


def stand_in_a_lock() -> None:
    threading.Event().wait()


def work(rank: int, scene: str, folder: str, dimension: str, requests) -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD,
        timeout=datetime.timedelta(hours=1),
    )  # fmt: skip
    set_title(f"VLLM::Worker_{dimension}{rank}")
    while True:
        step = dequeue(requests)
        if step and (scene, rank) == ("code", 1):
            stand_in_a_lock()
        if not (step and (scene, rank) == ("left", 0)):
            dist.all_reduce(torch.ones(4))
        requests.send(step)
        if step and (scene, rank) == ("after", 1):
            stand_in_a_lock()


def serve_engine(scene: str, folder: str, dimension: str, server) -> None:
    set_title("VLLM::EngineCore")
    spawn, workers = multiprocessing.get_context("spawn"), []
    for rank in range(WORLD):
        ours, theirs = spawn.Pipe()
        arguments = (rank, scene, folder, dimension, theirs)
        spawn.Process(target=work, args=arguments, daemon=True).start()
        workers.append(ours)
    asked: queue.Queue = queue.Queue()

    def process_input() -> None:
        while True:
            asked.put(server.recv())

    threading.Thread(target=process_input, daemon=True).start()
    while True:
        step = asked.get()
        for worker in workers:
            worker.send(step)
        server.send([dequeue(worker) for worker in workers])


def main() -> None:
    scene, folder, dimension = [*sys.argv[1:], "TP"][:3]
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    engine = spawn.Process(target=serve_engine, args=(scene, folder, dimension, theirs))
    engine.start()
    said = Path(folder, "said")
    ours.send(0)
    ours.recv()
    said.write_text("ready")
    if scene != "idle":
        ours.send(1)
        said.write_text("happens")
    while scene == "works":
        ours.recv()
        ours.send(1)
        time.sleep(0.01)
    engine.join()


if __name__ == "__main__":
    main()
