"""What one node shows of a job, `unhang/evidence/1`, as a value. Documents come from nodes: a row
that is not as expected is left out here, and counted in its section's probe."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import replace

from unhang.core.catalogue.own_tables import table
from unhang.core.gpu_verbs import TABLES, GpuVerb, gpu_verbs
from unhang.core.verdict.activities import MAIN, OTHER
from unhang.core.verdict.job import Apart, Socket, Wait
from unhang.jobs.flight import Flight, flight_of
from unhang.jobs.inspect.whose_gpus import Gpu, gpu_of, number_or_none, own_gpus
from unhang_node.base.nvml.names import domain_name
from unhang_node.base.parse.values import (
    as_list,
    as_map,
    as_maps,
    number_of,
    whole_or_none,
)

MOST_RANKS = 1 << 20
# USER_HZ, the unit of a process's start in /proc, is 100 on every machine with GPUs
TICKS_PER_S = 100
Whole = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
Natural = Annotated[int, Meta(ge=0, le=1 << 62)]
Number = Annotated[float, Meta(ge=-1e18, le=1e18)]
Kind = TypeVar("Kind")


class OfProcess(Struct, frozen=True):
    pid: Whole


OneOf = TypeVar("OneOf", bound=OfProcess)


class RankRow(OfProcess, frozen=True):
    """A process with a rank. launcher, settings: by its environment; wakes, has_ended: as the
    watcher saw it."""

    job: str = ""
    rank: Whole | None = None
    world_size: Whole | None = None
    own_pid: Whole | None = None
    started: Number = 0.0
    launcher: str | None = None
    settings: dict[str, str] = {}
    engine: Whole | None = None
    has_ended: bool = False
    wakes: bool = False


class Bytes(Struct, frozen=True):
    read_bytes: Number | None = None
    write_bytes: Number | None = None


class Thread(Struct, frozen=True):
    """frames: the youngest first; item: on which a worker works."""

    name: str | None = None
    wchan: str | None = None
    frames: list[str] = []
    item: list[str] = []


class Child(OfProcess, frozen=True):
    command: str = "?"
    state: str = "?"
    cpu_s: Number = 0.0
    wchan: str | None = None


class ProcessRow(OfProcess, frozen=True):
    """One look at a rank, also a sample of it, which has `read_bytes` beside the others and the
    number of its children; None where it lacks a value. The schema and samples.py say what each
    is."""

    state: str = "?"
    asked_as: str = ""
    cpu_s: Number | None = None
    switches: Number | None = None
    io: Bytes | None = None
    read_bytes: Number | None = None
    write_bytes: Number | None = None
    wchan: str | None = None
    tracer: Whole | None = None
    frozen: str | None = None
    threads_blocked: list[Thread] = []
    children: list[Child] | Whole = 0
    children_cpu_s: Number | None = None
    disk_bytes: Number | None = None
    call_bytes: Number | None = None
    calls: Number | None = None
    compilers: Number | None = None
    socket_bytes_s: Number | None = None
    arrived_bytes_s: Number | None = None
    arrived_from: str | None = None
    arrived_below: bool | None = None

    def below(self) -> list[Child]:
        """Its children, of which a sample has the number alone."""
        return self.children if isinstance(self.children, list) else []


NOBODY = ProcessRow(0, "")


class Dump(OfProcess, frozen=True):
    """The stack of a process. of: the rank's pid."""

    of: Whole | None = None
    threads: list[Thread] = []

    @property
    def frames(self) -> list[str]:
        """Of the main thread."""
        return self.threads[0].frames if self.threads else []

    @property
    def by_name(self) -> dict[str, list[str]]:
        """{name of a thread: its frames}; the main one by its own."""
        return {one.name or OTHER: one.frames for one in self.threads} | {MAIN: self.frames}

    def led_by(self, name: str) -> Dump:
        """The same, with this thread in place of the main one."""
        return replace(self, threads=sorted(self.threads, key=lambda one: one.name != name))


class SocketsRow(OfProcess, frozen=True):
    sockets: tuple[Socket, ...] = ()
    wait: Wait | None = None


class LogRow(Struct, frozen=True):
    """The end of a log, and the ranks that write it."""

    path: str
    pids: list[Whole] = []
    lines: list[str] = []


class Fault(Struct, frozen=True):
    """A line of the kernel log, as the section faults of unhang/node-facts/1 has it."""

    kind: str = ""
    code: Whole | None = None
    pci_address: str | None = None
    count: Whole | None = None
    line: str = ""
    last_s: Number | None = None


class Reset(Struct, frozen=True):
    verb: str
    uuid: str | None = None
    pci_address: str | None = None
    age_s: Number | None = None
    because: list[str] = []


class Remap(Struct, frozen=True):
    pending: bool | None = None
    failed: bool | None = None


class Device(Struct, frozen=True):
    """What a GPU says of its faults."""

    index: Whole | None = None
    uuid: str | None = None
    pci_address: str | None = None
    recovery_action: str | None = None
    row_remap: Remap | None = None
    retired_pages: Remap | None = None
    error: str | None = None
    nvlink_domain: str | None = None


class Probe(Struct, frozen=True):
    status: str
    error: str | None = None
    unread: list[dict[str, str]] = []


class UsedRow(OfProcess, frozen=True):
    cpu_cores: Number | None = None
    run_queue: Number | None = None


class Card(Struct, frozen=True):
    """A GPU in the looks of --slow. processes: (pid, the rank's pid that it is or is below, None
    where it is of no rank, its command)."""

    index: Whole
    name: str | None = None
    power_w: Number | None = None
    clock_sm_mhz: Number | None = None
    utilization_percent: Number | None = None
    memory_activity_percent: Number | None = None
    throttle: dict[str, Number] = {}
    looks: Number = 0
    processes: list[tuple[Whole, Whole | None, str | None]] = []


class Communicator(Struct, frozen=True):
    """ranks: (rank in the communicator, host, pid, GPU, looks behind, waits, longest)."""

    size: Whole
    launched: Whole
    total: Whole
    missing: Whole
    ranks: list[tuple[Natural, str, Natural, Natural, Natural, Natural, Natural]]


class PaceSection(Struct, frozen=True):
    """As unhang_node/job/pace.py has it."""

    looks: Whole = 0
    answered: Whole = 0
    seconds: Number = 0
    why: str | None = None
    form: str | None = None
    communicators: list[Communicator] = []
    ranks: list[UsedRow] = []
    gpus: list[Card] = []


@dataclass(frozen=True)
class NodeEvidence:
    """host: the name that the node was asked by, else its own. first, second: {process: a look};
    gap_s: seconds between them, link_gap_s those of its GPUs; log_bytes: of each rank the sizes
    of its log; gpus: in both; pids: the job's processes; dumps, later: {process: its stack};
    verbs: what its faulty GPUs need; kernel_lines: about faults since the ranks began; ras: the
    answers of NCCL's RAS; pace: None where --slow was not asked for."""

    host: str
    as_root: bool
    probes: Mapping[str, Probe]
    ranks: Sequence[RankRow]
    apart: Sequence[Apart]
    first: Mapping[int, ProcessRow]
    second: Mapping[int, ProcessRow]
    gap_s: float
    log_bytes: Mapping[int, Sequence[Any]]
    gpus: tuple[Sequence[Gpu], Sequence[Gpu]]
    link_gap_s: float
    pids: frozenset[int]
    nvlink_domain: str
    dumps: Mapping[int, Dump]
    later: Mapping[int, Dump]
    sockets: Mapping[int, SocketsRow]
    locks: tuple[str, ...]
    logs: Sequence[LogRow]
    flights: Sequence[Flight]
    verbs: Sequence[GpuVerb]
    kernel_lines: Sequence[str]
    ras: Sequence[Mapping[str, Any]]
    pace: PaceSection | None

    @property
    def own_gpus(self) -> tuple[Sequence[Gpu], Sequence[Gpu]]:
        """In both looks those on which nobody but the job has memory."""
        first, second = (own_gpus(gpus, self.pids) for gpus in self.gpus)
        return first, second

    def pairs(self) -> Iterator[tuple[ProcessRow, ProcessRow, float]]:
        """Of each rank that was looked at twice its rows and the seconds between them."""
        for rank in self.ranks:
            if rank.pid in self.first and rank.pid in self.second:
                yield self.first[rank.pid], self.second[rank.pid], self.gap_s


def _gap_s(looks: Mapping[str, Any]) -> float:
    """Seconds between the two looks of a section."""
    gap_s = number_of(looks.get("at_2_s")) - number_of(looks.get("at_1_s"))
    return max(0.1, gap_s) if looks.get("at_2_s") else 1.0


def _of_the_job(faults: Sequence[Fault], ranks: Sequence[RankRow]) -> list[Fault]:
    """Those since the ranks began. One without a time is left out: it may be a month old."""
    began_s = min((row.started for row in ranks), default=0.0) / TICKS_PER_S
    return [one for one in faults if one.last_s is not None and one.last_s >= began_s]


def _flights(rows: Sequence[Mapping[str, Any]]) -> Iterator[Flight]:
    """The dumps that lay on the node, with the rank of each."""
    for row in rows:
        rank = whole_or_none(row.get("rank"))
        if rank is not None and 0 <= rank < MOST_RANKS:
            written_s = number_or_none(row.get("written_s"))
            yield flight_of(row, str(row.get("path"))[:400], rank, written_s)


def rows_of(kind: type[Kind], rows: object, probe: Probe | None = None) -> list[Kind]:
    """The rows of a list that are as expected; what else there is, the probe says."""
    found = []
    for row in as_list(rows):
        with suppress(ValidationError):
            found.append(convert(row, kind))
    if probe and (lost := len(as_list(rows)) - len(found)):
        probe.unread.append(
            {
                "status": "invalid",
                "reason": f"{lost} of {lost + len(found)} rows are not as expected, and left out",
            }
        )
    return found


def host_of(document: Mapping[str, Any]) -> str:
    """The name that the node was asked by, else its own."""
    own = as_map(document.get("collector")).get("host")
    return str(document.get("asked_as") or own or "?")


def evidence_of(documents: Sequence[Mapping[str, Any]]) -> list[NodeEvidence]:
    """documents: of the nodes of one job."""
    return [*map(_evidence_of, documents)]


def _evidence_of(document: Mapping[str, Any]) -> NodeEvidence:
    sections: dict[str, Any] = defaultdict(dict)
    for name, section in as_map(document.get("sections")).items():
        sections[name] = as_map(section)
    probes = {
        name: one
        for name, section in sections.items()
        for one in rows_of(Probe, [section.get("probe")])
    }

    def rows(kind: type[Kind], of: str, name: str) -> list[Kind]:
        return rows_of(kind, sections[of].get(name), probes.get(of))

    def by_pid(kind: type[OneOf], *of: str) -> dict[int, OneOf]:
        return {row.pid: row for row in rows(kind, *of)}

    ranks = rows_of(RankRow, document.get("ranks"), probes.get("ranks"))
    first, second = (by_pid(ProcessRow, "proc", name) for name in ("ranks_1", "ranks_2"))
    looks = [*first.values(), *second.values()]
    pids = {one.pid for row in looks for one in (row, *row.below())}
    devices = rows(Device, "nvml", "gpus_1")
    faults = _of_the_job(rows(Fault, "kernel_log", "events"), ranks)
    judged = {
        "gpus": {"devices": devices or None},
        "faults": {"events": faults, "resets": rows(Reset, "kernel_log", "resets")},
    }
    caches = as_maps(sections["locks"].get("caches"))
    domains = {domain_name(one.nvlink_domain) for one in devices if one.nvlink_domain} - {""}
    sizes = (as_list(sections["proc"].get(name)) for name in ("log_bytes_1", "log_bytes_2"))
    first_gpus, gpus = (
        [*map(gpu_of, as_maps(sections["nvml"].get(name)))] for name in ("gpus_1", "gpus_2")
    )
    pace = sections["pace"]
    return NodeEvidence(
        host_of(document), as_map(document.get("collector")).get("as_root") is True, probes,
        ranks, rows(Apart, "ranks", "apart"), first, second, _gap_s(sections["proc"]),
        {row.pid: both for row, *both in zip(ranks, *sizes, strict=False)},
        (first_gpus, gpus), _gap_s(sections["nvml"]),
        frozenset(pids.union(row.pid for row in ranks)),
        domains.pop() if len(domains) == 1 else "", by_pid(Dump, "stacks", "processes"),
        by_pid(Dump, "stacks", "processes_2"), by_pid(SocketsRow, "sockets", "ranks"),
        tuple(str(lock.get("path")) for row in caches for lock in as_maps(row.get("locks"))),
        rows(LogRow, "log_tail", "logs"), [*_flights(as_maps(sections["log_tail"].get("flights")))],
        gpu_verbs(judged, {name: table(name) for name in TABLES}),
        [one.line for one in faults if one.line],
        [row for row in as_maps(sections["ras"].get("looks"))
         if isinstance(row.get("communicators"), list)],
        next(iter(rows_of(PaceSection, [pace], probes.get("pace"))), None)
        if "looks" in pace else None,
    )  # fmt: skip
