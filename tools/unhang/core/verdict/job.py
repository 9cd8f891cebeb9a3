"""What was seen of a job: the values that a verdict on it is made of and made into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from unhang.core.verdict.activities import Activity
from unhang.core.verdict.communicators import Standing
from unhang.core.verdict.suspect import Suspect
from unhang.core.verdict.waiting import Recording

HUNG, RUNNING, UNKNOWN = "hung", "running", "unknown"
SLOW, EVEN = "slow", "even"  # by the looks of --slow
GONE = ("gone", "reused", "Z", "X")
HALTED = ("T", "t")  # states of a process that is stopped or traced
# What an engine does: it waits for a request, or for what its workers answer, or it goes on.
IDLE, ASKS, MOVES = "idle", "asks", "moves"
# what moves between two looks at a rank, in words
CHILDREN, FILES, DATA, SOCKETS, COMPILES = (
    "its children compute",
    "it reads or writes files",
    "it or a child of it reads or writes data",
    "data arrives or leaves by a socket",
    "it compiles",
)
BYTES = (FILES, DATA, SOCKETS)


@dataclass(frozen=True)
class Worker:
    """A process that a rank started. where: its place in the user's code; item: what it works on,
    "" where that is not known."""

    pid: int
    where: str
    item: str


@dataclass(frozen=True)
class Process:
    """Of a child what it did between the looks: the processor time that it took, and whether it is
    new, or was stopped in both."""

    pid: int
    command: str
    state: str
    place: str = ""
    took_s: float = 0.0
    is_new: bool = False
    is_stopped: bool = False

    def __str__(self) -> str:
        return f"{self.pid} ({self.command}, state {self.state})"


@dataclass(frozen=True)
class Socket:
    """Addresses as the kernel has them."""

    state: str
    local: str
    remote: str


@dataclass(frozen=True)
class Wait:
    """For what the kernel says that a main thread waits; None where it does not."""

    call: str | None = None
    target: str | None = None
    child: Process | None = None
    holder: Process | None = None
    sockets: tuple[Socket, ...] = ()


@dataclass(frozen=True)
class RankLook:
    """One rank as its node saw it.

    states: of the two looks. cpu: cores in use between them; has_io: it read or wrote. moved: its
    functions in the user's code are at other lines in the second look (None: not known); shifted:
    they are other functions; waited: its main thread waited without a break.
    computes: its GPU moves memory, which NCCL's waiting kernel does not; spins: it is busy and
    moves none. blocked: where its threads hang in the kernel.
    signs: what moved between the looks; arrives: what came to a socket of it, in words; innermost:
    Python's youngest frame, `function (file)`; locks: of extension builds on its node; serves:
    another thread of it is a server; awaits_a_queue: its main thread takes from a queue. wakes: its
    main thread woke up between the looks, or again and again before them; in_own_code: its youngest
    frame is the user's, no library's; path: the frames of the user's code, oldest first. engine: of
    a worker of an engine that serves what that does: IDLE, ASKS, MOVES or its place; "" for other
    ranks; awaits_engine: it waits for the engine. frozen: the control group that froze it in both
    looks.
    """

    rank: int | None
    host: str = ""
    pid: int = 0
    own_pid: int = 0
    gpu: str | None = None
    job: str = ""
    world_size: int | None = None
    states: tuple[str, ...] = ()
    cpu: float | None = None
    has_io: bool = False
    wchan: str | None = None
    tracer: int | None = None
    doing: Activity | None = None
    moved: bool | None = None
    shifted: bool | None = None
    waited: bool = False
    children: tuple[Process, ...] = ()
    worker: Worker | None = None
    blocked: tuple[str, ...] = ()
    sockets: tuple[Socket, ...] = ()
    log_grew: bool | None = None
    computes: bool = False
    spins: bool = False
    local_world_size: int = 0
    signs: Mapping[str, str] = field(default_factory=dict)
    arrives: str = ""
    innermost: str = ""
    wait: Wait = Wait()
    locks: tuple[str, ...] = ()
    serves: bool = False
    awaits_a_queue: bool = False
    is_launched: bool = False
    wakes: bool = False
    in_own_code: bool = False
    path: tuple[str, ...] = ()
    engine: str = ""
    frozen: str = ""
    awaits_engine: bool = False

    @property
    def state(self) -> str:
        """Of the last look."""
        return self.states[-1] if self.states else "?"

    @property
    def activity(self) -> str:
        """What it does, by name; "" without a stack."""
        return self.doing.name if self.doing else ""

    @property
    def where(self) -> str:
        """The place in its code, "" without a stack."""
        return self.doing.where if self.doing else ""

    @property
    def is_stopped(self) -> bool:
        """Stopped in both looks."""
        return bool(self.states) and all(state in HALTED for state in self.states)

    @property
    def is_ended(self) -> bool:
        """No longer there."""
        return self.state in GONE

    @property
    def in_kernel(self) -> bool:
        """In state D in both looks, or one of its threads or children, and nothing was read or
        written meanwhile."""
        is_stuck = bool(self.states) and all(state == "D" for state in self.states)
        return is_stuck and not self.has_io


@dataclass(frozen=True)
class Apart:
    """A rank of the same user, program and world size that meets elsewhere. job: as of a rank."""

    rank: int
    pid: int
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
class Job:
    """One look at a job. looks: its ranks, in their order; standing: what RAS knows, without a
    version where it did not answer; recording: what dumps of the flight recorder show, of two ranks
    or more."""

    looks: Sequence[RankLook]
    standing: Standing
    nodes: tuple[NodeLook, ...]
    recording: Recording | None

    @property
    def gpus_move(self) -> bool | None:
        """Whether a GPU of the job moved its memory or its links; None where none is seen to and
        others have memory on one, which then says nothing. False without GPUs, as for a job on
        processors."""
        if any(node.moves for node in self.nodes):
            return True
        return None if any(node.is_shared for node in self.nodes) else False


@dataclass(frozen=True)
class Verdict:
    """state: hung, running, unknown, slow, even, or what the job is busy with; named: ranks that
    others wait for, worst first; headline: one sentence."""

    state: str
    named: Sequence[Suspect]
    headline: str


def ranks_of(looks: Iterable[RankLook]) -> frozenset[int]:
    """The numbers of those that have one."""
    return frozenset(look.rank for look in looks if look.rank is not None)


def waiting_ranks(looks: Sequence[RankLook]) -> frozenset[int]:
    """Those whose stack is in a call that waits for other ranks."""
    return ranks_of(look for look in looks if look.doing and look.doing.awaits_ranks)
