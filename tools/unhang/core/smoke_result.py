"""The result of the smoke test, unhang/smoke/1, as a value: a document is read here once, and what
is behind this door opens no mapping but those that a node reported of itself, which may hold
anything: the verdict reads these rows of a running job too."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, convert, field, to_builtins

from unhang.core.verdict.suspect import Suspect

Reported = dict[str, Any]
SCHEMA: Literal["unhang/smoke/1"] = "unhang/smoke/1"
# expectations hold from a quarter of the table's size on; small messages are latency
LARGE_BYTES = 256 << 20


class Group(Struct, frozen=True):
    """The properties of a group that select its expectation. transport: the slowest in use, nvlink,
    pcie, shm or net; nvls: NVLink SHARP in use."""

    gpu: str
    gpus: int
    nvls: bool
    transport: str


class Collective(Struct, frozen=True):
    """One operation, dtype and size over all ranks. wrong: None if it was not checked."""

    op: str
    size_bytes: int
    busbw_gb_s: float
    dtype: str = ""
    time_us: float = 0.0
    algbw_gb_s: float = 0.0
    wrong: int | None = None
    measures: str = ""
    ranks: int = 0


class JudgedRate(Struct, frozen=True):
    """Measured bandwidth beside what such a group reaches, None if nobody knows that. verdict:
    pass, fail, not judged."""

    op: str
    size_bytes: int
    busbw_gb_s: float
    low_gb_s: float | None
    high_gb_s: float | None
    source: str
    verdict: str


class MeetingPlace(Struct, frozen=True):
    host: str
    address: str
    port: int
    interface: str | None
    why: str


class Host(Struct, frozen=True):
    """A node and its ranks. problem: why it could not be asked, or broke off; ended: its results
    are complete."""

    host: str
    ranks: list[int]
    problem: str | None
    ended: bool
    torch: Any = None
    cuda: Any = None
    driver: Any = None
    backend: Any = None
    executable: Any = None
    nccl: list[Any] = []
    gpus: list[Any] = []


class Phase(Struct, frozen=True):
    """status: the worst of all ranks; ranks: by status; duration_s, steps: of the slowest rank."""

    name: str
    status: str
    duration_s: float
    ranks: dict[str, list[int]]
    steps: dict[str, float] = {}


class Transport(Struct, frozen=True):
    """How a pair of ranks is connected. nvlink: None where it is unknown."""

    sender: int = field(name="from")
    receiver: int = field(name="to")
    via: list[str]
    channels: int
    nvlink: bool | None
    kind: str | None
    label: str
    nics: list[str]


class Trial(Struct, frozen=True):
    """An experiment. cured: with this change the phase passed."""

    name: str
    phase: str
    change: dict[str, str]
    verdict: str
    cured: bool
    note: str | None
    duration_s: float


class Isolation(Struct, frozen=True):
    """What the search for the bad node found, in so many rounds. answer: for a person, a sentence;
    bad_nodes, bad_links: the causes; switches: pairs of switches that fail only together;
    from_nodes: smallest number of nodes with which the group fails; unresolved: nodes that cannot
    be separated from their partners, because there is no good one."""

    rounds: int
    answer: str
    bad_nodes: tuple[str, ...] = ()
    bad_links: tuple[tuple[str, str], ...] = ()
    switches: tuple[tuple[str, str], ...] = ()
    from_nodes: int | None = None
    unresolved: tuple[str, ...] = ()


class Note(Struct, frozen=True):
    host: str
    text: str


class SmokeResult(Struct, frozen=True, kw_only=True):
    """verdict: error if nothing could be proved either way; not_proved: why, if the load or a
    repeat that passed leaves that open."""

    schema: Literal["unhang/smoke/1"]
    verdict: Literal["pass", "fail", "error"]
    not_proved: str | None = None
    world_size: int
    group: Group | None = None
    rendezvous: MeetingPlace | None = None
    hosts: list[Host]
    phases: list[Phase]
    collectives: list[Collective]
    bandwidth: list[JudgedRate] = []
    suspects: list[Suspect]
    transports: list[Transport] = []
    evidence: list[Reported] = []
    nodes: list[Reported] = []
    unfit: list[str] = []
    experiments: list[Trial]
    isolation: Isolation | None = None
    notes: list[Note] = []
    launcher: str | UnsetType = UNSET
    started: str | UnsetType = UNSET
    duration_s: float | UnsetType = UNSET
    command: str | None = None


def smoke_result(document: Any) -> SmokeResult:
    """Raises ValueError that says what is wrong and where."""
    return convert(document, SmokeResult)


def document_of(result: SmokeResult) -> dict[str, Any]:
    """The document, plain data."""
    document: dict[str, Any] = to_builtins(result)
    return document | {"suspects": [suspect.as_dict() for suspect in result.suspects]}
