"""The door: the evidence of a job's nodes becomes one value. Documents come from nodes: what is not
as expected is left out here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unhang.core.verdict.job import Apart, NodeLook, waiting_ranks
from unhang.jobs.flight_steps import recording_of
from unhang.jobs.inspect.crowded import crowded
from unhang.jobs.inspect.faulty_gpus import clues_of, faulty_gpus, gpu_row
from unhang.jobs.inspect.flights import flights_of
from unhang.jobs.inspect.inspection import Host, JobLook
from unhang.jobs.inspect.rank_looks import (
    computing_gpus,
    gap_s_of,
    gpus_and_pids,
    host_of,
    rank_looks,
    section,
)
from unhang.jobs.inspect.rank_paces import job_pace
from unhang.jobs.inspect.ras_of_job import standing_of
from unhang.jobs.inspect.tracebacks import raised_in
from unhang.jobs.inspect.unread import unread_rows
from unhang.jobs.inspect.whose_gpus import own_gpus, shares_a_gpu
from unhang_node.base.nvml.names import domain_name
from unhang_node.base.parse.values import as_map, as_maps

IDLE_LINK_KIB_S = 1024


def read_job(documents: Sequence[Mapping[str, Any]]) -> JobLook:
    """documents: evidence of the nodes of one job."""
    looks, flights = rank_looks(documents), flights_of(documents)
    standing = standing_of(documents, looks)
    return JobLook(
        looks,
        standing,
        tuple(map(_node, documents)),
        recording_of(flights, waiting_ranks(looks)) if len(flights) > 1 else None,
        tuple(raised_in(documents)),
        job_pace(documents, looks),
        [*map(_host_row, documents)],
        [gpu_row(document, one) for document in documents for one in faulty_gpus(document)],
        {host_of(document): clues_of(document) for document in documents},
        [*crowded(documents, looks)],
        unread_rows(documents, looks, bool(standing.version)),
    )


def _host_row(document: Mapping[str, Any]) -> Host:
    status = as_map(section(document, "ranks").get("probe"))
    return Host(
        host_of(document),
        len(as_maps(document.get("ranks"))),
        status.get("error") if status.get("status") != "ok" else None,
        _nvlink_domain(document),
    )


def _nvlink_domain(document: Mapping[str, Any]) -> str:
    """The NVLink domain, a rack of nodes, of all GPUs of a node; "" where it has none."""
    cards = as_maps(section(document, "nvml").get("gpus_1"))
    found = {
        domain_name(str(card["nvlink_domain"])) for card in cards if card.get("nvlink_domain")
    } - {""}
    return found.pop() if len(found) == 1 else ""


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
