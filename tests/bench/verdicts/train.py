"""A training job in one of five shapes, with at most one fault in it, for record.py.

    TRAIN_SCENE='["SHAPE", "KIND", RANK, STEP, "BACKEND", "FOLDER"]' RANK=… WORLD_SIZE=…
    LOCAL_RANK=… MASTER_ADDR=… MASTER_PORT=… train.py

The command line is the same for each scene, for py-spy shows it. World size is a multiple of four.
KIND is a key of scenes.py; RANK is the rank that the fault is in, from STEP on. FOLDER/fault
appears just before it; FOLDER/look asks a job without watchdog for its flight recorder; FOLDER/stop
ends a healthy one.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

SHAPE, KIND, FAULTED, FAULT_STEP, BACKEND, FOLDER = json.loads(os.environ["TRAIN_SCENE"])
FOLDER = Path(FOLDER)
HEALTHY = KIND.startswith("healthy")
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"
ELEMENTS, SMALL, LARGE = 1 << 20, 1 << 8, 1 << 24
TIMEOUT = datetime.timedelta(seconds=float(os.environ["PG_TIMEOUT_S"]))
WARM_UP = datetime.timedelta(seconds=120)  # communicators are made in the first step
STEPS = 12
# outermost dimension first, as init_device_mesh takes them
MESHES = {
    "data": {"dp": WORLD},
    "tensor": {"dp": WORLD // 4, "tp": 4},
    "pipeline": {"pp": 4, "dp": WORLD // 4},
    "expert": {"dp": WORLD // 4, "ep": 4},
    "mixed": {"dp": WORLD // 4, "pp": 2, "tp": 2},
}


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Shards(torch.utils.data.Dataset):
    """Each rank's worker reads shards; the one at FAULT_STEP is a FIFO that nobody writes to."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, at: int) -> torch.Tensor:
        if KIND == "loader" and RANK == FAULTED and at == FAULT_STEP:
            self.read_shard(FOLDER / "shard-00017")
        return torch.full((64,), float(at))

    def read_shard(self, path: Path) -> bytes:
        os.mkfifo(path)
        return path.read_bytes()


def make_groups() -> dict[str, dist.ProcessGroup]:
    """{dimension: this rank's group}, under the names that init_device_mesh gives them."""
    mesh = torch.arange(WORLD).reshape(*MESHES[SHAPE].values())
    mine = {}
    for at, name in enumerate(MESHES[SHAPE]):
        for row in mesh.movedim(at, -1).reshape(-1, mesh.shape[at]).tolist():
            group = dist.new_group(row, timeout=WARM_UP, group_desc=f"mesh_{name}")
            if RANK in row:
                mine[name] = group
    return mine


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def is_due(step: int) -> bool:
    return not HEALTHY and RANK == FAULTED and step == FAULT_STEP


def mark() -> None:
    (FOLDER / "fault").touch()


def hold_interpreter_lock() -> None:
    ctypes.PyDLL(None).sleep(3600)


def run_kernel_without_end() -> None:
    if DEVICE == "cuda":
        torch.cuda._sleep(150_000_000_000)  # more than a minute: ends if everything else fails
        return
    matrix, until = torch.ones(512, 512), time.monotonic() + 60
    while time.monotonic() < until:
        matrix = torch.tanh(matrix @ matrix)


def notify_tracker() -> None:
    time.sleep(3600)


def before_forward(step: int) -> None:
    """The faults that are not in a call of torch.distributed."""
    if not is_due(step) or KIND in ("operation", "size", "peer", "order", "loader"):
        return
    mark()
    if KIND == "never":
        notify_tracker()
    elif KIND == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif KIND == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif KIND == "kernel":
        run_kernel_without_end()
    elif KIND == "gil":
        hold_interpreter_lock()


def reduce(x: torch.Tensor, step: int, group: dist.ProcessGroup | None, faulty: bool) -> None:
    """Sums over a group. faulty: this is where `operation` and `size` happen. NCCL finishes sums of
    slightly different size; a small and a large one take unlike protocols, and stay."""
    if faulty and KIND == "size":
        x = x.repeat(LARGE // x.numel())
    if faulty and is_due(step) and KIND == "operation":
        mark()
        gathered = x.new_empty(x.numel() * dist.get_world_size(group))
        dist.all_gather_into_tensor(gathered, x, group=group)
    elif faulty and is_due(step) and KIND == "size":
        mark()
        dist.all_reduce(x[:SMALL], group=group)
    else:
        dist.all_reduce(x, group=group)


def finish_step(
    x: torch.Tensor, step: int, group: dist.ProcessGroup, faulty: bool = False
) -> float:
    """Gradients over the group, their norm over all ranks. In `order` both are waited for at once,
    and one rank takes them the other way round."""
    norm = torch.ones(1 << 12, device=DEVICE)

    def gradients() -> None:
        if dist.get_world_size(group) > 1:
            reduce(x, step, group, faulty=faulty and SHAPE == "data")

    def norms() -> None:
        reduce(norm, step, None, faulty=faulty and SHAPE != "data")

    parts = [gradients, norms]
    if KIND == "order" and is_due(step):
        mark()
        parts.reverse()
    for part in parts:
        part()
        if KIND == "order":
            wait()
    return float(norm[0])


def step_data(x: torch.Tensor, step: int, groups: dict[str, dist.ProcessGroup]) -> float:
    return finish_step(x, step, groups["dp"], faulty=True)


def step_tensor(x: torch.Tensor, step: int, groups: dict[str, dist.ProcessGroup]) -> float:
    if KIND == "order":
        return finish_step(x, step, groups["tp"])
    reduce(x, step, groups["tp"], faulty=True)
    return finish_step(x, step, groups["dp"])


def step_expert(x: torch.Tensor, step: int, groups: dict[str, dist.ProcessGroup]) -> float:
    """Tokens go to the experts and come back; how many differs from rank to rank."""
    group, me = groups["ep"], dist.get_rank(groups["ep"])
    if KIND == "order":
        return finish_step(x, step, group)
    size = dist.get_world_size(group)
    counts = [[1000 + 100 * ((a * 3 + b + step) % 5) for b in range(size)] for a in range(size)]
    sent, received = counts[me], [counts[a][me] for a in range(size)]
    if is_due(step) and KIND == "operation":
        mark()
        gathered = x.new_empty(x.numel() * size)
        dist.all_gather_into_tensor(gathered, x, group=group)
        tokens = gathered[: sum(received)].clone()
    else:
        tokens = x.new_empty(sum(received))
        dist.all_to_all_single(tokens, x[: sum(sent)].clone(), received, sent, group=group)
    back = x.new_empty(sum(sent))
    dist.all_to_all_single(back, tokens, sent, received, group=group)
    return finish_step(x, step, groups["dp"], faulty=KIND == "size")


def step_pipeline(x: torch.Tensor, step: int, groups: dict[str, dist.ProcessGroup]) -> float:
    """One micro batch forward, its gradient back."""
    group = groups["pp"]
    stage, last = dist.get_rank(group), dist.get_world_size(group) - 1
    peers = [dist.get_global_rank(group, at) for at in range(last + 1)]
    activations = x[: 1 << 16].clone()
    if stage > 0:
        dist.recv(activations, peers[stage - 1], group=group)
    if stage < last:
        target = stage + 1
        if is_due(step) and KIND == "peer":
            mark()
            target = (stage + 2) % (last + 1)
        dist.send(activations, peers[target], group=group)
        dist.recv(activations, peers[stage + 1], group=group)
    if stage > 0:
        dist.send(activations, peers[stage - 1], group=group)
    return finish_step(x, step, groups["dp"], faulty=True)


def step_mixed(x: torch.Tensor, step: int, groups: dict[str, dist.ProcessGroup]) -> float:
    """Each of two stages is split over two ranks, which sum before and after they send."""
    group = groups["pp"]
    stage, peer = dist.get_rank(group), dist.get_global_rank(group, 1 - dist.get_rank(group))
    if KIND == "order":
        return finish_step(x, step, groups["tp"])
    activations = x[: 1 << 16].clone()
    if stage == 1:
        dist.recv(activations, peer, group=group)
    reduce(x, step, groups["tp"], faulty=True)
    if stage == 0:
        dist.send(activations, peer, group=group)
        dist.recv(activations, peer, group=group)
    else:
        dist.send(activations, peer, group=group)
    dist.all_reduce(activations, group=groups["tp"])
    return finish_step(x, step, groups["dp"])


STEP = {
    "data": step_data,
    "tensor": step_tensor,
    "pipeline": step_pipeline,
    "expert": step_expert,
    "mixed": step_mixed,
}


def recorder_bytes() -> bytes:
    module = torch._C._distributed_c10d
    return getattr(module, "_dump_nccl_trace" if BACKEND == "nccl" else "_dump_fr_trace")()


def dump_when_asked() -> None:
    """As a debug server does. The watchdog of NCCL's process group dumps by itself."""
    while not (FOLDER / "look").exists():
        time.sleep(0.1)
    write_dump()


def write_dump() -> None:
    place = Path(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(RANK))
    place.with_suffix(".new").write_bytes(recorder_bytes())
    place.with_suffix(".new").rename(place)


def save_checkpoint(groups: dict[str, dist.ProcessGroup]) -> None:
    """Rank 0 writes for a while, and all others wait for it."""
    if RANK == 0:
        mark()
        until = time.monotonic() + float(os.environ["SAVE_S"])
        while time.monotonic() < until:
            torch.save({"weights": torch.ones(1 << 22)}, FOLDER / "checkpoint.pt")
    dist.barrier()


def train(groups: dict[str, dist.ProcessGroup]) -> None:
    loader = iter(torch.utils.data.DataLoader(Shards(), batch_size=1, num_workers=1))
    step = 0
    while True:
        if KIND == "loader" and is_due(step):
            mark()
        x = next(loader).to(DEVICE).mean() + torch.ones(ELEMENTS, device=DEVICE)
        before_forward(step)
        loss = STEP[SHAPE](x, step, groups)
        if RANK == 0:
            say(f"step {step} loss {loss / (step + 1) / WORLD:.4f}")
        if step == 1 and not HEALTHY:
            for group in (None, *groups.values()):
                dist.distributed_c10d._set_pg_timeout(TIMEOUT, group)
        if KIND == "healthy-saving" and step == 6:
            save_checkpoint(groups)
        if KIND == "healthy-running" and step == 6 and RANK == 0:
            mark()
        stop = torch.tensor([float((FOLDER / "stop").exists())], device=DEVICE)
        if KIND == "healthy-running":
            dist.all_reduce(stop)
            time.sleep(0.05)
        step += 1
        if (step == STEPS and KIND != "healthy-running") or float(stop) > 0:
            return


def main() -> None:
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(BACKEND, timeout=WARM_UP)
    groups = make_groups()
    mesh = " x ".join(f"{name} {size}" for name, size in MESHES[SHAPE].items())
    say(f"rank {RANK} of {WORLD}: {SHAPE}, {mesh}")
    dumper = threading.Thread(target=dump_when_asked, daemon=True)
    if (HEALTHY and KIND != "healthy-finished") or BACKEND == "gloo":
        dumper.start()
    train(groups)
    wait()
    if (FOLDER / "look").exists():  # a dump takes seconds, and must not outlive the groups
        dumper.join()
    if KIND == "healthy-finished":
        write_dump()
        dist.barrier()
    dist.destroy_process_group()
    say("done")


main()
