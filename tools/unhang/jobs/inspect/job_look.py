"""One look at a job, with what `unhang inspect` shows beside the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unhang.core.verdict.job import Job, Raised
from unhang.jobs.inspect.inspection import FaultyGpu, Host, Unread
from unhang.jobs.inspect.rank_paces import JobPace


@dataclass(frozen=True)
class JobLook(Job):
    """raised: tracebacks with which logs end; pace: of --slow; clues:
    of each host, to the cause of what fails there; crowded: which ranks share a GPU while another
    idles."""

    raised: tuple[Raised, ...]
    pace: JobPace | None
    hosts: Sequence[Host]
    gpus: Sequence[FaultyGpu]
    clues: Mapping[str, Sequence[str]]
    crowded: Sequence[str]
    unread: Sequence[Unread]
