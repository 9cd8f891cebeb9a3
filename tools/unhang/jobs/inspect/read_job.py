"""The door: the evidence of a job's nodes becomes one value."""

from __future__ import annotations

from collections.abc import Sequence

from unhang.core.gpu_verbs import GpuVerb
from unhang.core.verdict.job import NodeLook, waiting_ranks
from unhang.core.verdict.likely_causes import kernel_clues
from unhang.jobs.flight_steps import recording_of
from unhang.jobs.inspect.crowded import crowded
from unhang.jobs.inspect.evidence import NodeEvidence
from unhang.jobs.inspect.flights import flights_of
from unhang.jobs.inspect.inspection import FaultyGpu, Host, JobLook
from unhang.jobs.inspect.rank_looks import computing_gpus, rank_looks
from unhang.jobs.inspect.rank_paces import job_pace
from unhang.jobs.inspect.ras_of_job import standing_of
from unhang.jobs.inspect.tracebacks import raised_in
from unhang.jobs.inspect.unread import unread_rows
from unhang.jobs.inspect.whose_gpus import shares_a_gpu

IDLE_LINK_KIB_S = 1024


def read_job(nodes: Sequence[NodeEvidence]) -> JobLook:
    """nodes: those of one job."""
    looks, flights = rank_looks(nodes), flights_of(nodes)
    standing = standing_of(nodes, looks)
    return JobLook(
        looks,
        standing,
        tuple(map(_node, nodes)),
        recording_of(flights, waiting_ranks(looks)) if len(flights) > 1 else None,
        tuple(raised_in(nodes)),
        job_pace(nodes, looks),
        [*map(_host_row, nodes)],
        [
            FaultyGpu(node.host, one.index, one.uuid, one.pci_address, one.verb, one.because)
            for node in nodes
            for one in node.verbs
        ],
        {
            node.host: [*map(_clue, node.verbs[:1]), *kernel_clues(node.kernel_lines)]
            for node in nodes
        },
        [*crowded(nodes, looks)],
        unread_rows(nodes, looks, bool(standing.version)),
    )


def _clue(one: GpuVerb) -> str:
    """One line for people: what the GPU needs, and for what."""
    wants = {"power-cycle": "power-cycle its node", "replace": "replace it"}.get(one.verb, one.verb)
    return f"{one.name} asks to {wants}, for {', '.join(one.because)}"


def _host_row(node: NodeEvidence) -> Host:
    probe = node.probes.get("ranks")
    problem = probe.error if probe else None
    return Host(node.host, len(node.ranks), problem, node.nvlink_domain)


def _node(node: NodeEvidence) -> NodeLook:
    first, second = node.own_gpus
    most_kib = IDLE_LINK_KIB_S * node.link_gap_s
    moved = (after.link_kib - gpu.link_kib for gpu, after in zip(first, second, strict=False))
    return NodeLook(
        node.host,
        bool(second),
        any(gpu.pids for gpu in second),
        bool(computing_gpus(node)) or any(kib > most_kib for kib in moved),
        shares_a_gpu(node.gpus[1], node.pids),
        tuple(node.apart),
    )
