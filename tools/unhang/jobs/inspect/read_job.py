"""The door: the evidence of a job's nodes becomes one value. Documents come from nodes: what is not
as expected is left out here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.jobs.flight_steps import recording_of
from unhang.jobs.inspect.communicators import standing_of
from unhang.jobs.inspect.flights import flights_of
from unhang.jobs.inspect.job_look import Apart, JobLook, NodeLook
from unhang.jobs.inspect.rank_looks import (
    computing_gpus,
    gap_s_of,
    gpus_and_pids,
    host_of,
    rank_looks,
    section,
    waiting_ranks,
)
from unhang.jobs.inspect.tracebacks import raised_in
from unhang.jobs.inspect.whose_gpus import own_gpus, shares_a_gpu
from unhang_node.base.parse.values import as_maps

IDLE_LINK_KIB_S = 1024


def read_job(documents: Sequence[Mapping[str, Any]]) -> JobLook:
    """documents: evidence of the nodes of one job."""
    looks, flights = rank_looks(documents), flights_of(documents)
    return JobLook(
        documents,
        looks,
        standing_of(documents, looks),
        tuple(map(_node, documents)),
        recording_of(flights, waiting_ranks(looks)) if len(flights) > 1 else None,
        tuple(raised_in(documents)),
    )


def _node(document: Mapping[str, Any]) -> NodeLook:
    first, second = (own_gpus(*gpus_and_pids(document, number)) for number in (1, 2))
    most_kib = IDLE_LINK_KIB_S * gap_s_of(section(document, "nvml"))
    moved = (after.link_kib - gpu.link_kib for gpu, after in zip(first, second, strict=False))
    return NodeLook(
        host_of(document),
        bool(second),
        any(gpu.pids for gpu in second),
        bool(computing_gpus(document)) or any(kib > most_kib for kib in moved),
        shares_a_gpu(*gpus_and_pids(document, 2)),
        tuple(
            Apart(row["rank"], str(row.get("pid")), str(row.get("job")))
            for row in as_maps(section(document, "ranks").get("apart"))
            if isinstance(row.get("rank"), int)
        ),
    )
