"""Whether a slow rank is seen from outside while its job runs: RAS asked 50 times in ten seconds
and NVML beside it, over scenes in which rank 1 is slow for a known reason. Prints one row a scene.

    python tests/bench/slow_rank_trial.py [--scenes healthy,loader] [--with-inspect]

--with-inspect: what `unhang inspect --slow` says of each scene instead, and whether that is right.

Needs two GPUs, torch and NCCL 2.28 or later; with one, both ranks share it, and only the scenes of
the host say anything. Reads settings of the cards, and changes none.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "module_utils")]

from unhang_node.job.parse.ras import parse_ras  # noqa: E402

LOOKS, EVERY_S = 50, 0.2
SCENES = ("healthy", "loader", "loader now and then", "cpu", "gpu neighbour", "more work")
SYNC = ("each step", "each 20 steps")
JOB = """
import os, sys, time, torch, torch.distributed as dist
scene, sync, rank = sys.argv[1], int(sys.argv[2]), int(os.environ["RANK"])
torch.cuda.set_device(rank % torch.cuda.device_count())
dist.init_process_group("nccl")
a = torch.randn(6144, 6144, device="cuda", dtype=torch.bfloat16)
grads = torch.randn((32 if torch.cuda.device_count() > 1 else 1) << 20, device="cuda")
pinned = {1} if scene == "cpu" and rank == 1 else None
if pinned:
    os.sched_setaffinity(0, pinned)
began, n = time.monotonic(), 0
while True:
    if rank == 1 and scene == "loader":
        time.sleep(0.04)
    if rank == 1 and scene == "loader now and then" and n % 25 == 0:
        time.sleep(1.0)
    for _ in range(20 if rank == 1 and scene == "more work" else 8):
        b = a @ a
    dist.all_reduce(grads)
    n += 1
    if n % sync == 0:
        grads.mul_(0.5).sum().item()
        if rank == 0:
            print(n / (time.monotonic() - began), flush=True)
"""
BUSY_GPU = """
import torch
torch.cuda.set_device(1)
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
while True:
    for _ in range(50):
        b = a @ a
    torch.cuda.synchronize()
"""
BUSY_CPU = "import os\nos.sched_setaffinity(0, {1})\nwhile True: pass\n"


def ask(port: int) -> str:
    """RAS's answer; "" for none."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 2) as link:
        link.settimeout(2)
        link.sendall(b"CLIENT PROTOCOL 2\n")
        link.recv(4096)
        link.sendall(b"SET FORMAT json\n")
        link.recv(4096)
        link.sendall(b"VERBOSE STATUS\n")
        received = bytearray()
        with contextlib.suppress(TimeoutError):
            while piece := link.recv(1 << 16):
                received += piece
        return received.decode("utf-8", "replace")
    return ""


def counts_of(text: str) -> dict[int, int]:
    """{rank: collectives launched} of the largest communicator."""
    with contextlib.suppress(ValueError, KeyError):
        found = max(parse_ras(text)["communicators"], key=lambda one: one["size"])
        launched: dict[int, int] = {}
        for group in found["counts"]:
            for rank in group["ranks"]:
                launched[rank] = sum(group["ops"].values())
        return launched
    return {}


def card(handle: object) -> dict[str, float]:
    """What NVML says of a card now."""
    import pynvml as nvml

    values: dict[str, float] = {}
    for name, read in {
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "util": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "mem_util": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).memory,
        "reasons": lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
    }.items():
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            values[name] = float(read())
    return values


def cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(
    scene: str, sync: str, port: int, folder: Path
) -> Iterator[list[subprocess.Popen[str]]]:
    """The ranks of a scene, fifteen seconds after their start."""
    import pynvml as nvml

    one_gpu = nvml.nvmlDeviceGetCount() == 1
    program = folder / "job.py"
    program.write_text(JOB)
    children: list[subprocess.Popen[str]] = []
    more = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port + 1000),
        "WORLD_SIZE": "2",
        "NCCL_RAS_ADDR": f"localhost:{port}",
        "NCCL_NVLS_ENABLE": "0",
    }
    try:
        with (folder / "log").open("w") as out:
            for rank in (0, 1):
                argv = [sys.executable, str(program), scene, "1" if sync == SYNC[0] else "20"]
                # NCCL refuses two ranks of one host on one GPU
                shared = {"NCCL_HOSTID": str(rank), "NCCL_SOCKET_IFNAME": "lo"} if one_gpu else {}
                own = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                environment = {**os.environ, **more, **own}
                children.append(
                    subprocess.Popen(argv, env=environment, stdout=out, stderr=out, text=True)
                )
        time.sleep(8)
        for name, text in (("gpu neighbour", BUSY_GPU), ("cpu", BUSY_CPU)):
            for _ in range((scene == name) * (4 if name == "cpu" else 1)):
                children.append(subprocess.Popen([sys.executable, "-c", text], text=True))
        time.sleep(7)
        yield children[:2]
    finally:
        for child in children:
            child.kill()
            child.wait()


def steps_s(folder: Path) -> float | None:
    lines = [line for line in (folder / "log").read_text().splitlines() if line[:1].isdigit()]
    return round(float(lines[-1]), 1) if lines else None


def trial(scene: str, sync: str, port: int, folder: Path) -> dict[str, object]:
    """The readings of one scene."""
    import pynvml as nvml

    with running(scene, sync, port, folder) as children:
        handles = [
            nvml.nvmlDeviceGetHandleByIndex(rank % nvml.nvmlDeviceGetCount()) for rank in (0, 1)
        ]
        behind, unread, spent, cards = {0: 0, 1: 0}, 0, [], [[], []]
        used = [cpu_s(child.pid) for child in children]
        began, gaps = time.monotonic(), []
        for _ in range(LOOKS):
            at = time.monotonic()
            counts = counts_of(ask(port))
            spent.append(time.monotonic() - at)
            if len(counts) == 2:
                gaps.append(counts[0] - counts[1])
                if counts[0] != counts[1]:
                    behind[min(counts, key=lambda rank: counts[rank])] += 1
            else:
                unread += 1
            for rank, handle in enumerate(handles):
                cards[rank].append(card(handle))
            time.sleep(max(0.0, EVERY_S - (time.monotonic() - at)))
        wall = time.monotonic() - began
        busy = [
            (cpu_s(child.pid) - before) / wall for child, before in zip(children, used, strict=True)
        ]

    def median(rank: int, name: str) -> float:
        return statistics.median(one.get(name, float("nan")) for one in cards[rank])

    rate = steps_s(folder)
    return {
        "scene": scene,
        "sync": sync,
        "steps_s": rate,
        "looks": LOOKS - unread,
        "behind": [behind[0], behind[1]],
        "gap": statistics.median(gaps) if gaps else None,
        "ras_ms": round(1000 * statistics.median(spent), 1),
        "power_w": [round(median(rank, "power_w")) for rank in (0, 1)],
        "sm_mhz": [round(median(rank, "sm_mhz")) for rank in (0, 1)],
        "util": [round(median(rank, "util")) for rank in (0, 1)],
        "mem_util": [round(median(rank, "mem_util")) for rank in (0, 1)],
        "reasons": [sorted({int(one.get("reasons", 0)) for one in cards[rank]}) for rank in (0, 1)],
        "cpu": [round(one, 2) for one in busy],
        "tail": "" if rate else (folder / "log").read_text()[-600:],
    }


def inspected(scene: str, sync: str, port: int, folder: Path) -> dict[str, object]:
    """What `unhang inspect --slow` says of one scene."""
    # beside these what the caller has of PyYAML
    folders = [str(PROJECT / "tools"), str(PROJECT / "module_utils"), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    with running(scene, sync, port, folder) as children:
        pids = [word for child in children for word in ("--pid", str(child.pid))]
        argv = [sys.executable, "-m", "unhang", "inspect", "--slow", *pids, "-o", "json"]
        began = time.monotonic()
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        took_s = time.monotonic() - began
    found = json.loads(done.stdout) if done.stdout else {"headline": done.stderr[-600:]}
    named = [one["rank"] for one in found.get("suspects", [])]
    # contended processors cost a job that launches 20 steps ahead only 6 % of its steps
    hardly = scene == "cpu" and sync == SYNC[1]
    right = ([],) if scene == "healthy" else ([], [1]) if hardly else ([1],)
    return {
        "scene": scene,
        "sync": sync,
        "steps_s": steps_s(folder),
        "exit_code": done.returncode,
        "took_s": round(took_s, 1),
        "named": named,
        "is_right": named in right,
        "state": found.get("state"),
        "headline": found["headline"],
        "pace": found.get("pace"),
        "unread": found.get("unread"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", default=",".join(SCENES))
    parser.add_argument("--with-inspect", action="store_true", help="ask unhang inspect --slow")
    given = parser.parse_args()
    import pynvml as nvml

    nvml.nvmlInit()
    print(nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(0)))  # noqa: T201
    port = 28100
    for sync in SYNC:
        for scene in given.scenes.split(","):
            port += 1
            with tempfile.TemporaryDirectory() as folder:
                read = inspected if given.with_inspect else trial
                print(json.dumps(read(scene, sync, port, Path(folder))), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
