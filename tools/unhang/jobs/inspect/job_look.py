"""The values that a verdict on a running job is made of and made into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.core.verdict.communicators import Standing
from unhang.core.verdict.suspect import Suspect
from unhang.jobs.inspect.communicators import standing_of
from unhang.jobs.inspect.rank_looks import RankLook, rank_looks

HUNG, RUNNING, UNKNOWN = "hung", "running", "unknown"
SLOW, EVEN = "slow", "even"  # by the looks of --slow


@dataclass(frozen=True)
class JobLook:
    """One look at a job. documents: the evidence, one of each node; looks: its ranks, in their
    order; standing: what RAS knows, without a version where it did not answer."""

    documents: Sequence[Mapping[str, Any]]
    looks: Sequence[RankLook]
    standing: Standing


@dataclass(frozen=True)
class Verdict:
    """state: hung, running, unknown, slow, even, or what the job is busy with; named: whom the
    others wait for, worst first; headline: one sentence."""

    state: str
    named: Sequence[Suspect]
    headline: str


def job_look(documents: Sequence[Mapping[str, Any]]) -> JobLook:
    """documents: evidence of the nodes of one job."""
    looks = rank_looks(documents)
    return JobLook(documents, looks, standing_of(documents, looks))
