"""Phases broadcast to agreement: compares the result of each operation with the exactly known
one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from .pattern import pattern, reduced_pattern, summand, wrong_elements
from .run import Failed, Run, meet


def op_broadcast(
    run: Run, count: int, dtype: Any, seed: int
) -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """Broadcast: every rank receives the last rank's data."""
    torch, source = run.torch, run.world - 1
    held = pattern(torch, run.device, count, run.rank, seed, 256, dtype)
    expected = pattern(torch, run.device, count, source, seed, 256, dtype)
    return held, lambda: run.dist.broadcast(held, source), lambda: [(source, held, expected)]


def op_all_reduce(
    run: Run, count: int, dtype: Any, seed: int
) -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """all_reduce: the sum over all ranks."""
    held = summand(run.torch, run, count, run.rank, seed, dtype)
    return (
        held,
        lambda: run.dist.all_reduce(held),
        lambda: [(None, held, reduced_pattern(run.torch, run, count, seed, dtype))],
    )


def op_all_gather(
    run: Run, count: int, dtype: Any, seed: int
) -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """all_gather: each rank's part, at that rank's place."""
    torch = run.torch
    held = pattern(torch, run.device, count, run.rank, seed, 256, dtype)
    whole = torch.zeros(count * run.world, dtype=dtype, device=run.device)

    def parts() -> Iterable[tuple[int | None, Any, Any]]:
        for source, part in enumerate(whole.split(count)):
            yield source, part, pattern(torch, run.device, count, source, seed, 256, dtype)

    return held, lambda: gather_whole(run, whole, held), parts


def op_reduce_scatter(
    run: Run, count: int, dtype: Any, seed: int
) -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """reduce_scatter: this rank's part of the sum."""
    held = summand(run.torch, run, count * run.world, run.rank, seed, dtype)
    part = run.torch.zeros(count, dtype=dtype, device=run.device)

    def parts() -> Iterable[tuple[int | None, Any, Any]]:
        return [
            (
                None,
                part,
                reduced_pattern(run.torch, run, count, seed, dtype, start=count * run.rank),
            )
        ]

    return held, lambda: scatter_sum(run, part, held), parts


def gather_whole(run: Run, whole: Any, part: Any) -> Any:
    """all_gather into one tensor, ordered by rank."""
    return run.dist.all_gather_into_tensor(whole, part)


def scatter_sum(run: Run, part: Any, whole: Any) -> Any:
    """reduce_scatter from one tensor."""
    return run.dist.reduce_scatter_tensor(part, whole)


OPERATIONS = {
    "broadcast": op_broadcast, "all_reduce": op_all_reduce, "all_gather": op_all_gather,
    "reduce_scatter": op_reduce_scatter,
}  # fmt: skip


def phase_operation(run: Run) -> None:
    """Runs one operation on fresh data, in float32 and bfloat16, and compares it with the exactly
    known result."""
    torch, operation = run.torch, OPERATIONS[run.phase]
    count = max(
        1024,
        min(
            1 << 18,
            (1 << 24) // run.world,
            (run.plan.get("max_bytes") or 1 << 30) // 4 // run.world,
        ),
    )
    total, senders = 0, {}
    for number, dtype in enumerate((torch.float32, torch.bfloat16)):
        seed = run.seed + 101 * number + 7 * list(OPERATIONS).index(run.phase)
        held, call, parts = operation(run, count, dtype, seed)
        if any(
            one["fault"] == "corrupt"
            and one["rank"] == run.rank
            and one.get("phase", run.phase) == run.phase
            for one in run.plan.get("drills") or ()
        ):
            # one element; for a whole number x, 1 - x is never x
            held[count // 3] = 1 - held[count // 3]
        name = str(dtype).replace("torch.", "")
        began = time.perf_counter()
        run.collective("%s %s" % (run.phase, name), call)
        time_us = (time.perf_counter() - began) * 1e6
        wrong_from = {}
        for source, found, expected in parts():
            wrong = wrong_elements(found, expected)
            if wrong:
                wrong_from["unknown" if source is None else source] = wrong
                senders["unknown" if source is None else source] = wrong
        wrong = sum(wrong_from.values())
        total += wrong
        size = count * dtype_bytes(dtype) * (run.world if run.phase in SPREAD else 1)
        about = {"op": run.phase, "dtype": name, "size_bytes": size, "measures": "correctness"}
        run.event(
            "collective", time_us=round(time_us, 1), wrong=wrong, wrong_from=wrong_from, **about
        )
    if total:
        run.store.add("wrong", total)
        raise Failed(
            "%s gave a wrong result, which is known exactly: %d elements are wrong"
            % (run.phase, total),
            wrong=total,
            wrong_from=senders,
        )


# their size is that of the whole result, as nccl-tests counts
SPREAD = ("all_gather", "reduce_scatter")


def dtype_bytes(dtype: Any) -> int:
    """Bytes of an element."""
    return 2 if "16" in str(dtype) else 4


def phase_agreement(run: Run) -> None:
    """Whether any rank found wrong data: all ranks get the same answer from the store, and continue
    or end together."""
    meet(run, "operations")
    wrong = run.store.add("wrong", 0)
    if wrong:
        raise Failed("results that are known exactly are wrong: %d elements in all" % wrong)
