"""The collector's cost for a running job: steps per second of a DDP job on all GPUs without it,
with it every second and every minute, in one run."""

from __future__ import annotations

import array
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from smoke_bench import QUIET, Bench

WINDOW_S, TURNS, MINUTE_S = 10.0, 3, 60.0
START_S = 120.0
JOB = """
import array, os, sys, time, torch, torch.distributed as dist
folder, gpu, shared = sys.argv[1], sys.argv[2] == "nccl", sys.argv[3] == "shared"
rank = int(os.environ["RANK"])
device = torch.device("cuda", 0 if shared else rank) if gpu else torch.device("cpu")
if gpu:
    torch.cuda.set_device(device)
    torch.backends.cuda.matmul.allow_tf32 = True
dist.init_process_group(sys.argv[2])
width = 4096 if gpu else 64
layers = [layer for _ in range(4) for layer in (torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(device), device_ids=[device.index] if gpu else None)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
batch, stop, times = torch.randn(256, width, device=device), torch.zeros(1, device=device), array.array("d")
while not stop.item():
    for _ in range(20):
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        times.append(time.monotonic())
    if rank == 0:
        with open(os.path.join(folder, "times"), "ab") as sink:
            times.tofile(sink)
        times = array.array("d")
        stop.fill_(os.path.exists(os.path.join(folder, "stop")))
    dist.broadcast(stop, 0)
dist.destroy_process_group()
"""


def step_job(bench: Bench) -> None:
    """Windows of the same length in turn, then a minute with one collection in it, and finally one
    without."""
    with running_job(bench) as folder:
        time.sleep(5.0)  # until clocks and caches are stable
        rates: dict[str, list[float]] = {"none": [], "each second": [], "each minute": []}
        took: list[float] = []
        for _ in range(TURNS):
            rates["none"].append(window(bench, folder, WINDOW_S, None, took))
            rates["each second"].append(window(bench, folder, WINDOW_S, 1.0, took))
        rates["each minute"].append(window(bench, folder, MINUTE_S, MINUTE_S, took))
        rates["none"].append(window(bench, folder, WINDOW_S, None, took))
    alone = statistics.mean(rates["none"])
    bench.measured["job"] = {"steps_per_s": rates, "collections_s": took}
    bench.say(
        f"DDP job on {bench.nproc} ranks alone, steps/s",
        f"{alone:.2f} ({', '.join(f'{rate:.2f}' for rate in rates['none'])})",
    )
    for name in ("each second", "each minute"):
        with_it = statistics.mean(rates[name])
        found = (
            f"{with_it:.2f} ({', '.join(f'{rate:.2f}' for rate in rates[name])}); ratio"
            f" **{with_it / alone:.4f}** (aim 0.995)"
        )
        bench.say(f"the same with a collection {name}", found)
        bench.measured["job"][name] = with_it / alone
    bench.say(
        "a collection beside that job", f"{statistics.median(took):.2f} s (median of {len(took)})"
    )
    bench.expect(
        "job",
        bench.measured["job"]["each minute"] >= 0.995,
        f"at least 0.995, found {bench.measured['job']['each minute']:.4f}",
    )


@contextmanager
def running_job(bench: Bench) -> Iterator[Path]:
    """A job that trains until the block ends; yields the folder with the times of its steps. Raises
    RuntimeError when it does not start."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.py").write_text(JOB, encoding="utf-8")
        ranks = []
        for rank in range(bench.nproc):
            place = {
                "RANK": str(rank),
                "WORLD_SIZE": str(bench.nproc),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "29617",
                "OMP_NUM_THREADS": "1",
            }
            hosts = {"NCCL_HOSTID": f"host{rank}"} if bench.shared else {}
            argv = [
                bench.python,
                str(folder / "job.py"),
                str(folder),
                bench.backend,
                "shared" if bench.shared else "own",
            ]
            ranks.append(
                subprocess.Popen(
                    argv, env={**os.environ, **QUIET, **place, **hosts}, stdin=subprocess.DEVNULL
                )
            )
        try:
            until = time.monotonic() + START_S
            while not (folder / "times").exists():
                if time.monotonic() > until or any(rank.poll() is not None for rank in ranks):
                    raise RuntimeError(
                        f"the job did not start: exit codes {[rank.poll() for rank in ranks]}"
                    )
                time.sleep(0.1)
            yield folder
        finally:
            (folder / "stop").touch()
            end(ranks)


def end(ranks: list[subprocess.Popen[bytes]]) -> None:
    """Waits for the processes to end, or kills them."""
    until = time.monotonic() + 20
    for rank in ranks:
        try:
            rank.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()


def window(
    bench: Bench, folder: Path, seconds: float, every_s: float | None, took: list[float]
) -> float:
    """Steps per second in a window in which the collector runs at this interval; records the time
    of each of its runs."""
    began = time.monotonic()
    following = began + min(every_s or 0.0, 2.0)
    while time.monotonic() < began + seconds:
        if every_s is not None and time.monotonic() >= following:
            asked = time.monotonic()
            subprocess.run(
                [sys.executable, "-I", "-S", bench.pyz],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )
            took.append(time.monotonic() - asked)
            following += every_s
        time.sleep(0.005)
    time.sleep(1.0)  # the job writes its times every few steps
    times = array.array("d")
    content = (folder / "times").read_bytes()
    times.frombytes(content[: len(content) // 8 * 8])
    inside = [at for at in times if began <= at < began + seconds]
    return (len(inside) - 1) / (inside[-1] - inside[0]) if len(inside) > 1 else 0.0
