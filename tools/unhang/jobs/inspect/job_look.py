"""The values that a verdict on a running job is made of and made into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from unhang.core.verdict.communicators import Standing
from unhang.core.verdict.suspect import Suspect
from unhang.jobs.flight_steps import Recording
from unhang.jobs.inspect.inspection import FaultyGpu, Host, Unread
from unhang.jobs.inspect.rank_looks import RankLook
from unhang.jobs.inspect.rank_paces import JobPace

HUNG, RUNNING, UNKNOWN = "hung", "running", "unknown"
SLOW, EVEN = "slow", "even"  # by the looks of --slow


@dataclass(frozen=True)
class Apart:
    """A rank of the same user, program and world size that meets elsewhere. job: as of a rank."""

    rank: int
    pid: str
    job: str


@dataclass(frozen=True)
class NodeLook:
    """One node. has_gpus: some on which nobody but the job has memory; in_use: the job has memory
    on one of them; moves: one moved memory or used its links; is_shared: others have memory on a
    GPU on which the job has some."""

    host: str
    has_gpus: bool
    in_use: bool
    moves: bool
    is_shared: bool
    apart: tuple[Apart, ...]


@dataclass(frozen=True)
class Raised:
    """rank: None where the log is of several and no line says whose it is. error: as Python prints
    it, with its place; path: of the log."""

    rank: int | None
    error: str
    path: str


@dataclass(frozen=True)
class JobLook:
    """One look at a job. looks: its ranks, in their order; standing: what RAS knows, without a
    version where it did not answer; recording: what dumps of the flight recorder show, of two ranks
    or more; raised: tracebacks with which logs end; pace: of --slow; clues: of each host, to the
    cause of what fails there; crowded: which ranks share a GPU while another idles."""

    looks: Sequence[RankLook]
    standing: Standing
    nodes: tuple[NodeLook, ...]
    recording: Recording | None
    raised: tuple[Raised, ...]
    pace: JobPace | None
    hosts: Sequence[Host]
    gpus: Sequence[FaultyGpu]
    clues: Mapping[str, Sequence[str]]
    crowded: Sequence[str]
    unread: Sequence[Unread]


@dataclass(frozen=True)
class Verdict:
    """state: hung, running, unknown, slow, even, or what the job is busy with; named: whom the
    others wait for, worst first; headline: one sentence."""

    state: str
    named: Sequence[Suspect]
    headline: str
