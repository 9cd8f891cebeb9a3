"""What the ranks of tests/bench/quiet_hours.py do: SHAPES of jobs that work and are silent for
long, and HANGS of jobs that stop working. Written before the detector's code was read; nothing here
prints or names anything for a watcher's sake.

Of a shape nothing may be said. Of a hang the rank that the scene names is to be said, in 75 s.
"""

from __future__ import annotations

import asyncio
import datetime
import http.server
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

FOREVER = 10**6
TRICKLE = "import os, time\nwhile True: os.write(1, bytes(1 << 16)); time.sleep(4)"
SLOW_DISK = """
import random, sys, time
rng, out = random.Random(sys.argv[1]), open(sys.argv[2], "wb")
while piece := sys.stdin.buffer.read(1 << 20):
    out.write(piece)
    time.sleep(rng.choice((1, 3, 5, 45)))
"""


@dataclass(frozen=True)
class Job:
    """A rank's own view; rng gives every rank of the job the same numbers, own different ones."""

    rank: int
    world: int
    device: str
    rng: random.Random
    own: random.Random
    victim: int
    x: torch.Tensor
    groups: dict[str, object] = field(default_factory=dict)


def reduce(job: Job, group: object = None, size: int = 0) -> None:
    x = torch.ones(size, device=job.device) if size else job.x
    dist.all_reduce(x, group=group)
    x.fill_(1.0).sum().item()


def compute(job: Job, seconds: float, rest_s: float = 0.5, size: int = 512) -> None:
    """Products of matrices, mostly resting: dozens of jobs share two cores."""
    size *= 8 if job.device == "cuda" else 1
    weights, until = torch.randn(size, size, device=job.device), time.monotonic() + seconds
    while time.monotonic() < until:
        (weights @ weights).sum().item()
        time.sleep(min(rest_s, max(0.0, until - time.monotonic())))


def train(job: Job, seconds: float) -> None:
    """Steps until the clock of rank 0 says so."""
    until, number = time.monotonic() + seconds, 0
    pause, speaks = job.rng.uniform(0.3, 2.0), job.rng.random() < 0.5
    while True:
        compute(job, pause, pause, 128)
        over = torch.tensor([float(time.monotonic() > until)], device=job.device)
        dist.broadcast(over, 0)
        reduce(job)
        number += 1
        if speaks and job.rank == 0 and number % 20 == 0:
            line = os.environ.get("QUIET_HOURS_LINE") or f"step {number} loss {1 / number:.4f}"
            print(line, flush=True)  # noqa: T201
        if over.item():
            return


def steps(job: Job) -> None:
    train(job, FOREVER)


def compiling(job: Job) -> None:
    """Rank 0 fills the compiler's cache while the others wait."""
    number = job.own.randrange(10**6)
    while True:
        train(job, job.rng.uniform(120, 400))
        until = time.monotonic() + job.rng.uniform(60, 90)
        while job.rank == 0 and time.monotonic() < until:
            number += 1
            body = "\n".join(f"    x = torch.sin(x) * {number}.{at} + {at}" for at in range(40))
            space: dict = {"torch": torch}
            exec(f"def forward(x):\n{body}\n    return x", space)
            torch.compile(space["forward"])(torch.ones(1 << 12, device=job.device))
        reduce(job)


def checkpoint(job: Job) -> None:
    """Rank 0 saves through a pipe to what uploads slowly: one piece in four takes 45 s."""
    state = torch.ones(job.rng.randint(4, 16) << 18)
    while True:
        train(job, job.rng.uniform(60, 200))
        if job.rank == 0:
            argv = [sys.executable, "-c", SLOW_DISK, str(job.own.random()), "model.pt"]
            with subprocess.Popen(argv, stdin=subprocess.PIPE) as upload:
                torch.save({"model": state}, upload.stdin)
        reduce(job)


def evaluation(job: Job) -> None:
    while True:
        train(job, job.rng.uniform(60, 180))
        seconds = job.rng.uniform(70, 300)
        if job.rank == 0:
            compute(job, seconds)
        reduce(job)


def first_step(job: Job) -> None:
    """Each rank prepares its part, one much longer than the others, and again in each epoch."""
    while True:
        compute(job, job.own.uniform(20, 60) + 200 * (job.rank == job.world - 1), 1.0)
        reduce(job)
        train(job, job.rng.uniform(60, 300))


class Samples(Dataset):
    """Samples that come late: each after a stall of at most 50 s, or piece by piece from a slow
    server. After `good` of them one never comes."""

    def __init__(self, seed: str, trickles: bool = False, good: int = FOREVER) -> None:
        self.rng, self.trickles, self.good = random.Random(seed), trickles, good

    def __len__(self) -> int:
        return FOREVER

    def __getitem__(self, at: int) -> torch.Tensor:
        if at >= self.good:
            ours, _theirs = socket.socketpair()
            ours.recv(1)
        if self.good < FOREVER or self.rng.random() < 0.9:
            time.sleep(0.5)
        elif self.trickles:
            argv = [sys.executable, "-c", TRICKLE]
            with subprocess.Popen(argv, stdout=subprocess.PIPE) as server:
                for _ in range(self.rng.randint(20, 40)):
                    server.stdout.read(1 << 16)
                server.kill()
        else:
            time.sleep(self.rng.uniform(10, 50))
        return torch.ones(16)


def loader(job: Job) -> None:
    samples = Samples(f"{job.own.random()}", trickles=job.rng.random() < 0.5)
    for _ in DataLoader(samples, batch_size=2, num_workers=1):
        reduce(job)


def accumulation(job: Job) -> None:
    while True:
        compute(job, job.rng.uniform(65, 150), 2.0)
        reduce(job)


def pipeline(job: Job) -> None:
    """One micro-batch after another through all stages: who waits, waits for the sum of them."""
    while True:
        seconds = [job.rng.uniform(2, 30) for _ in range(job.world)]
        if job.rank:
            dist.recv(job.x, job.rank - 1)
        compute(job, seconds[job.rank])
        if job.rank + 1 < job.world:
            dist.send(job.x, job.rank + 1)
        reduce(job)


def serving(job: Job) -> None:
    """Rank 0 takes requests, which are hours apart, and hands them to the others on the host."""
    requests: queue.Queue[int] = queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.put(1)
            self.send_response(200)
            self.end_headers()

    if job.rank == 0:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    request = torch.zeros(1)
    while True:
        if job.rank == 0:
            request.fill_(requests.get())
        dist.broadcast(request, 0, group=job.groups["host"])
        for _ in range(5):
            reduce(job)


def serving_asynchronously(job: Job) -> None:
    """As `serving`, by an event loop whose others wait at a socket of rank 0."""
    if job.rank:
        ours, _theirs = socket.socketpair()
        while ours.recv(1):
            reduce(job)

    async def serve() -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        await server.serve_forever()

    asyncio.run(serve())


def notebook(job: Job) -> None:
    """A kernel of one rank: its event loop is idle, a cell runs now and then, some cells sleep."""

    async def kernel() -> None:
        while True:
            await asyncio.sleep(job.rng.uniform(60, 900))
            reduce(job)
            time.sleep(job.rng.choice((1, 30, 200)))

    asyncio.run(kernel())


def polling(job: Job) -> None:
    """Rank 0 waits for the next shard, which others make, and asks for it every few seconds."""
    while True:
        train(job, job.rng.uniform(60, 200))
        until = time.monotonic() + job.rng.uniform(70, 200)
        while job.rank == 0 and time.monotonic() < until and not os.path.exists("next-shard"):
            time.sleep(5)
        reduce(job)


# shape: (ranks, what each does), in the order in which jobs are dealt
SHAPES: dict[str, tuple[int, Callable[[Job], None]]] = {
    "steps": (2, steps),
    "checkpoint": (3, checkpoint),
    "evaluation": (2, evaluation),
    "first step": (3, first_step),
    "loader": (2, loader),
    "accumulation": (2, accumulation),
    "pipeline": (4, pipeline),
    "serving": (2, serving),
    "serving, event loop": (2, serving_asynchronously),
    "notebook": (1, notebook),
    "polling": (2, polling),
    "compile": (2, compiling),
}


def hang(job: Job, what: Callable[[Job], None]) -> None:
    """Steps, then the victim does `what` and the others go on to the next step."""
    train(job, job.rng.uniform(20, 90))
    if job.rank == job.victim:
        begins(job)
        what(job)
    train(job, FOREVER)


def begins(job: Job) -> None:
    text = json.dumps({"rank": job.victim, "at": time.time()})
    Path("begun.new").write_text(text, encoding="ascii")
    os.replace("begun.new", "begun")


def sleeps(job: Job) -> None:
    time.sleep(FOREVER)


def locks(job: Job) -> None:
    lock = threading.Lock()
    with lock:
        lock.acquire()


def loads(job: Job) -> None:
    for _ in DataLoader(Samples("", good=4), num_workers=1):
        pass


def stops(job: Job) -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def saves(job: Job) -> None:
    """To a file system that takes nothing: a FIFO that nobody reads."""
    os.mkfifo("model.pt")
    torch.save({"model": job.x}, "model.pt")


def spins(job: Job) -> None:
    while True:
        pass


def waits_for_child(job: Job) -> None:
    subprocess.run([sys.executable, "-c", f"import time; time.sleep({FOREVER})"], check=True)


def extra(job: Job) -> None:
    reduce(job, job.groups["extra"])


def leaves(job: Job) -> None:
    """The victim has fewer samples and ends; the others wait until all have come to the end."""
    train(job, job.rng.uniform(20, 90))
    if job.rank == job.victim:
        begins(job)
        os._exit(0)
    store = dist.distributed_c10d._get_default_store()
    store.wait([f"end-{job.victim}"], datetime.timedelta(hours=9))


def other_order(job: Job) -> None:
    train(job, job.rng.uniform(20, 90))
    order = ("extra", "order")
    if job.rank == job.victim:
        begins(job)
        order = ("order", "extra")
    for name in order:
        reduce(job, job.groups[name])


def fewer_buckets(job: Job) -> None:
    """The victim's model has other sizes, so that its gradients are one bucket fewer. Unlike sizes
    in one collective end the ranks with gloo."""
    train(job, job.rng.uniform(20, 90))
    if job.rank == job.victim:
        begins(job)
    for _ in range(4 - (job.rank == job.victim)):
        reduce(job)
    train(job, FOREVER)


def subgroup(job: Job) -> None:
    """Two stages of two tensor-parallel ranks; one of the four waits for a lock."""
    at, until = job.groups, time.monotonic() + job.own.uniform(20, 90)
    while True:
        compute(job, 0.5)
        reduce(job, at["tensor"])
        reduce(job, at["stages"])
        if job.rank == job.victim and time.monotonic() > until:
            begins(job)
            locks(job)


# kind: (ranks, what each does)
HANGS: dict[str, tuple[int, Callable[[Job], None]]] = {
    "sleeps in user code": (2, lambda job: hang(job, sleeps)),
    "lock": (3, lambda job: hang(job, locks)),
    "loader worker": (2, lambda job: hang(job, loads)),
    "extra collective": (3, lambda job: hang(job, extra)),
    "order of collectives": (3, other_order),
    "SIGSTOP": (2, lambda job: hang(job, stops)),
    "exited early": (3, leaves),
    "checkpoint write": (2, lambda job: hang(job, saves)),
    "endless loop": (2, lambda job: hang(job, spins)),
    "waits for a child": (3, lambda job: hang(job, waits_for_child)),
    "sizes differ": (3, fewer_buckets),
    "one of four, tensor x stages": (4, subgroup),
}
# of two ranks nobody can say which of them is the one
MORE_THAN_TWO = {"extra collective", "order of collectives", "one of four, tensor x stages"}


def be_a_rank(what: str, seed: str, gpus: int) -> None:
    """Never returns, but by an error or by the scene's end."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if gpus:
        torch.cuda.set_device(rank % gpus)
    dist.init_process_group("nccl" if gpus else "gloo", timeout=datetime.timedelta(hours=9))
    rng, groups = random.Random(seed), {}
    # the store is on rank 0, and the others of a rank that ends need it
    victim = rng.randrange(what == "exited early", world)
    if what in HANGS:
        groups = {name: dist.new_group(range(world)) for name in ("extra", "order")}
    if what == "serving":
        # as the job's own: a request may come late
        forever = datetime.timedelta(hours=9)
        groups = {"host": dist.new_group(range(world), timeout=forever, backend="gloo")}
    if what.startswith("one of four"):
        for name, pairs in (("tensor", ((0, 1), (2, 3))), ("stages", ((0, 2), (1, 3)))):
            for pair in pairs:
                made = dist.new_group(pair)
                groups |= {name: made} if rank in pair else {}
    device = "cuda" if gpus else "cpu"
    own = random.Random(f"{seed}-{rank}")
    job = Job(rank, world, device, rng, own, victim, torch.ones(1 << 12, device=device), groups)
    if world > 1:
        reduce(job)
    ({**SHAPES, **HANGS})[what][1](job)
