"""Whose GPUs those of a node are: one function for `inspect` and `watch`, live and recorded. What a
GPU does speaks for a job only where nobody else has memory on it. Values in, values out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any


def own_gpus(
    gpus: Sequence[Mapping[str, Any]], pids: Collection[object]
) -> list[Mapping[str, Any]]:
    """Of the GPUs of one node those on which only a job's processes have memory; where the driver
    shows none of them on any GPU, as in a container, those on which it shows no process at all."""
    job = set(pids)
    if not any(job & set(gpu_pids(gpu)) for gpu in gpus):
        return [gpu for gpu in gpus if not gpu_pids(gpu)]
    return [gpu for gpu in gpus if (found := set(gpu_pids(gpu))) and found <= job]


def shares_a_gpu(gpus: Sequence[Mapping[str, Any]], pids: Collection[object]) -> bool:
    """Whether others have memory on a GPU on which the job has some: what it computes there is not
    known."""
    job = set(pids)
    return any((found := set(gpu_pids(gpu))) & job and found - job for gpu in gpus)


def gpu_pids(gpu: Mapping[str, Any]) -> list[int]:
    """The processes that have memory on a GPU: of a look, which has pairs with it, or of a
    sample."""
    rows = gpu.get("processes", gpu.get("pids"))
    found = (
        [row[0] if isinstance(row, list) and row else row for row in rows or ()]
        if isinstance(rows, list)
        else []
    )
    return [pid for pid in found if isinstance(pid, int)]
