"""A GPU in a look or a sample, and whose those of a node are: one function for `inspect` and
`watch`, live and recorded. What a GPU does speaks for a job only where nobody else has memory on
it. Values in, values out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang_node.base.parse.values import as_list, number_of

NODE = "asked_as"  # of samples that come from several nodes


@dataclass(frozen=True)
class Gpu:
    """node: "" where there is one alone; name: its number; pids: processes that have memory on it;
    busy, memory: percent of the time in which it computed, and moved memory; None where the driver
    does not say; link_kib: carried by NVLink since the driver was loaded."""

    node: str
    name: str
    pids: tuple[int, ...]
    busy: float | None
    memory: float | None
    power_w: float | None
    clock_mhz: float | None
    throttle: tuple[str, ...]
    is_lost: bool
    link_kib: float

    @property
    def key(self) -> tuple[str, str]:
        """Among the GPUs of all nodes."""
        return self.node, self.name


def gpu_of(row: Mapping[str, Any]) -> Gpu:
    """row: of a look, which has pairs with a process first, or of a sample."""
    rows = as_list(row.get("processes", row.get("pids")))
    found = [one[0] if isinstance(one, list) and one else one for one in rows]
    return Gpu(
        str(row.get(NODE) or ""),
        str(row.get("gpu", row.get("index"))),
        tuple(pid for pid in found if isinstance(pid, int)),
        number_or_none(row.get("utilization_percent")),
        number_or_none(row.get("memory_activity_percent")),
        number_or_none(row.get("power_w")),
        number_or_none(row.get("clock_sm_mhz")),
        tuple(map(str, as_list(row.get("throttle")))),
        bool(row.get("lost")),
        sum(map(number_of, as_list(row.get("nvlink_kib")))),
    )


def number_or_none(value: Any) -> float | None:
    """As number_of; None for anything else."""
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number_of(value) if plain else None


def own_gpus(gpus: Sequence[Gpu], pids: Collection[object]) -> list[Gpu]:
    """Of the GPUs of one node those on which only a job's processes have memory; where the driver
    shows none of them on any GPU, as in a container, those on which it shows no process at all."""
    job = set(pids)
    if not any(job.intersection(gpu.pids) for gpu in gpus):
        return [gpu for gpu in gpus if not gpu.pids]
    return [gpu for gpu in gpus if gpu.pids and job.issuperset(gpu.pids)]


def shares_a_gpu(gpus: Sequence[Gpu], pids: Collection[object]) -> bool:
    """Whether others have memory on a GPU on which the job has some: what it computes there is not
    known."""
    return any({*pids}.intersection(gpu.pids) and not {*gpu.pids} <= {*pids} for gpu in gpus)
