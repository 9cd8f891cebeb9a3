"""Phases pace and bandwidth: the speed of each rank alone, and of all of them together."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from .operations import gather_whole, scatter_sum
from .run import Run, drilled


def phase_pace(run: Run) -> dict[str, Any]:
    """Measures each rank's own work while all others do the same. It shows a slow rank; a
    collective hides it, because all ranks leave it together."""
    torch = run.torch
    size = 4096 if run.device.type == "cuda" else 192
    left = torch.randn(size, size, device=run.device)
    repeats = 8 if run.device.type == "cuda" else 4
    times = []
    run.collective("begin together", lambda: run.dist.all_reduce(torch.ones(1, device=run.device)))
    for _ in range(9):
        run.step("work alone")
        began = time.perf_counter()
        for _ in range(repeats):
            left = (left @ left).clamp_(-1, 1)
        if drilled(run, "slow"):
            time.sleep(0.25)
        run.await_device()
        times.append((time.perf_counter() - began) * 1e6)
    # The third fastest of nine: the speed of the rank itself, without the time that another process
    # on the same core took from it.
    return {"pace_us": round(sorted(times)[2], 1)}


def bandwidth_call(run: Run, operation: str, size_bytes: int) -> tuple[Callable[[], Any], int]:
    """(call, real size in bytes) of a float32 collective whose size is counted as nccl-tests
    does."""
    torch, dist = run.torch, run.dist
    count = max(1, size_bytes // 4 // run.world) * run.world
    whole = torch.zeros(count, device=run.device)
    part = torch.zeros(count // run.world, device=run.device)
    calls = {
        "all_reduce": lambda: dist.all_reduce(whole), "broadcast": lambda: dist.broadcast(whole, 0),
        "all_gather": lambda: gather_whole(run, whole, part),
        "reduce_scatter": lambda: scatter_sum(run, part, whole),
    }  # fmt: skip
    if operation == "all_to_all":
        came = torch.empty_like(whole)
        return lambda: dist.all_to_all_single(came, whole), count * 4
    return calls[operation], count * 4


def timed(run: Run, call: Callable[[], Any], iterations: int) -> float:
    """Mean time (us) of a call among `iterations` calls queued on the device one after the other,
    by the device's own clock."""
    torch = run.torch
    if run.device.type != "cuda":
        began = time.perf_counter()
        for _ in range(iterations):
            call()
        return (time.perf_counter() - began) * 1e6 / iterations
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(iterations):
        call()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) * 1e3 / iterations


def phase_bandwidth(run: Run) -> None:
    """Time of each collective by size: warm-up, then the median of several batches."""
    gpu = run.device.type == "cuda"
    sizes = run.plan.get("bandwidth_bytes") or (
        [1 << 20, 32 << 20, 256 << 20, 1 << 30] if gpu else [64 << 10, 1 << 20, 8 << 20]
    )
    largest = min(run.plan.get("max_bytes") or 1 << 62, run.free_bytes() // 4)
    agreed = run.torch.tensor([largest], dtype=run.torch.int64, device=run.device)
    run.collective(
        "agree on the largest size", lambda: run.dist.all_reduce(agreed, op=run.dist.ReduceOp.MIN)
    )
    for operation in run.plan.get("bandwidth_ops") or (
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "broadcast",
        "all_to_all",
    ):
        byte_s = None
        for size in sorted(one for one in sizes if one <= int(agreed)):
            byte_s = measure(run, operation, size, byte_s)


def measure(run: Run, operation: str, size: int, byte_s: float | None) -> float:
    """Measures one operation at one size, reported as an event. byte_s: seconds per byte at the
    size before, for an early deadline. Returns the new one."""
    gpu = run.device.type == "cuda"
    call, real = bandwidth_call(run, operation, size)
    name, warm = "%s of %d bytes" % (operation, real), 5 if gpu else 1
    run.collective(
        "warm up " + name,
        lambda: [call() for _ in range(warm)],
        size_bytes=real * warm,
        expected_s=byte_s and byte_s * real * warm,
    )
    once = run.torch.tensor([timed(run, call, 1)], dtype=run.torch.float64, device=run.device)
    run.collective(
        "agree on iterations", lambda: run.dist.all_reduce(once, op=run.dist.ReduceOp.MAX)
    )
    once_us = max(1.0, float(once))
    iterations = int(min(20, max(2, (100e3 if gpu else 30e3) / once_us)))
    batches = []
    for _ in range(5 if gpu else 3):
        batches.append(
            run.collective(
                "time " + name,
                lambda: timed(run, call, iterations),
                expected_s=once_us * 1e-6 * iterations,
            )
        )
    run.event("collective", op=operation, dtype="float32", size_bytes=real, time_us=round(statistics.median(batches), 2), wrong=None,  # noqa: E501
              iterations=iterations, batches=len(batches), measures="bandwidth")  # fmt: skip
    return once_us * 1e-6 / real
