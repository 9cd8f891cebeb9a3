"""Evidence of a job's nodes -> `unhang/inspection/1`: whether it hangs, who is waited for, where
that rank is, and what to do. Values in, values out."""

from __future__ import annotations

from collections.abc import Sequence

from unhang.core.secrets_in_text import masked_document
from unhang.core.verdict.by_looks import judge_looks
from unhang.core.verdict.communicators import Standing
from unhang.core.verdict.job import HUNG, UNKNOWN, RankLook
from unhang.core.verdict.likely_causes import with_likely
from unhang.core.verdict.sources import sources_of
from unhang.core.verdict.stands import place_of, worker_of
from unhang.jobs.inspect.evidence import NodeEvidence
from unhang.jobs.inspect.flights import with_recorded
from unhang.jobs.inspect.inspection import (
    Inspection,
    JobLook,
    Lag,
    Rank,
    Ras,
    Sources,
    inspection_in,
)
from unhang.jobs.inspect.read_job import read_job
from unhang.jobs.inspect.slow import pace_row, with_pace
from unhang.jobs.inspect.tracebacks import with_raised


def inspection_of(nodes: Sequence[NodeEvidence]) -> Inspection:
    """nodes: those of one job."""
    job = read_job(nodes)
    verdict, flights = judge_looks(job), None
    if verdict.state in (HUNG, UNKNOWN) and job.looks:
        verdict, flights = with_recorded(verdict, job)
        verdict = with_raised(verdict, job)
    by_looks, verdict = verdict, with_pace(verdict, job)
    found = Inspection(
        state=verdict.state,
        headline="; ".join([verdict.headline, *job.crowded]),
        world_size=_world_size(job),
        hosts=job.hosts,
        gpus=job.gpus,
        suspects=with_likely(verdict.named, job.clues, {}),
        recorded=flights if verdict is by_looks else None,
        pace=pace_row(job),
        ranks=[_rank_row(look, job.standing) for look in job.looks],
        ras=_ras_row(job.standing),
        sources=Sources(*sources_of(job)),
        unread=job.unread,
    )
    return inspection_in(masked_document(found.as_document()))


def _world_size(job: JobLook) -> int | None:
    named = max((look.world_size for look in job.looks if look.world_size), default=None)
    return named or job.standing.world_size or len(job.looks) or None


def _ras_row(standing: Standing) -> Ras | None:
    if not standing.version:
        return None
    lags = [Lag(lag.op, lag.highest, sorted(lag.behind())) for lag in standing.lags[:64]]
    seen = standing.version, standing.moved, len(standing.ranks)
    return Ras(*seen, sorted(standing.missing), lags)


def _rank_row(look: RankLook, standing: Standing) -> Rank:
    """The row of a rank in the document."""
    cores = None if look.cpu is None else round(look.cpu, 2)
    launched = standing.total.get(-1 if look.rank is None else look.rank)
    return Rank(
        look.rank, look.host, look.gpu, look.pid, look.state, cores, look.activity or None,
        place_of(look), worker_of(look), launched,
    )  # fmt: skip
