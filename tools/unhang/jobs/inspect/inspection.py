"""A look at a job, and what it found, without secrets, `unhang/inspection/1`. Values only; the
schema says what each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, convert, to_builtins

from unhang.core.verdict.job import Job, Raised, Worker
from unhang.core.verdict.suspect import Suspect
from unhang.jobs.inspect.rank_paces import JobPace


class Host(Struct, frozen=True, omit_defaults=True):
    host: str
    ranks: int
    problem: str | None
    nvlink_domain: str = ""


class FaultyGpu(Struct, frozen=True):
    host: str
    gpu: int | None
    uuid: str | None
    pci_address: str | None
    verb: str
    because: Sequence[str]


class Recorded(Struct, frozen=True):
    ranks: Sequence[int]
    says: str
    beside: str


class Paced(Struct, frozen=True):
    rank: int
    host: str
    gpu: str | None
    behind: int | None
    power_w: float | None
    clock_mhz: float | None
    busy: float | None
    memory: float | None
    cores: float | None
    run_queue: float | None
    throttle: Sequence[str]


class Pace(Struct, frozen=True):
    seconds: float
    looks: int
    answered: int
    moved: bool
    ranks: Sequence[Paced]


class Rank(Struct, frozen=True):
    rank: int | None
    host: str
    gpu: str | None
    pid: int
    state: str
    cpu_cores: float | None
    activity: str | None
    where: str | None
    worker: Worker | None
    launched: int | None


class Lag(Struct, frozen=True):
    op: str
    highest: int
    behind: Sequence[int]


class Ras(Struct, frozen=True):
    version: str
    moved: bool | None
    ranks: int
    missing: Sequence[int]
    lags: Sequence[Lag]


class Sources(Struct, frozen=True):
    stands: Sequence[str]
    works: Sequence[str]


class Unread(Struct, frozen=True):
    hosts: Sequence[str]
    what: str
    status: str
    why: str
    helps: str | None


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


class Inspection(
    Struct, frozen=True, omit_defaults=True, tag_field="schema", tag="unhang/inspection/1"
):
    state: str
    headline: str
    world_size: int | None
    hosts: Sequence[Host]
    gpus: Sequence[FaultyGpu]
    suspects: Sequence[Suspect]
    recorded: Recorded | None
    ranks: Sequence[Rank]
    ras: Ras | None
    sources: Sources
    unread: Sequence[Unread]
    pace: Pace | None = None

    def as_document(self) -> dict[str, Any]:
        """In the form of the schema."""
        suspects = [{**one.as_dict(), "cause": one.cause} for one in self.suspects]
        found: dict[str, Any] = to_builtins(self) | {"suspects": suspects}
        return found


def inspection_in(document: Mapping[str, Any]) -> Inspection:
    """document: of our own making."""
    return convert(document, Inspection)
