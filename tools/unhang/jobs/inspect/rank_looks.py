"""The evidence of all nodes as one row for each rank. Documents come from nodes: what is not as
expected is left out here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unhang.jobs.activities import Activity, activity_of, function_names, user_frames

ENDED = ("gone", "reused")
LEAST_BYTES_S = 64 * 1024  # read or written; less is a log line or a heartbeat


@dataclass(frozen=True)
class RankLook:
    """One rank as its node saw it.

    states: of the two looks. cpu: cores in use between them; written_s, read_s: bytes a second.
    moved: its functions in the user's code are at other lines in the second look (None: not known);
    shifted: they are other functions; waited: its main thread waited without a break. computes: its
    GPU moves memory, which NCCL's waiting kernel does not. children: rows of the second look, each
    with the processor time that it took since the first.
    """

    rank: int | None
    host: str
    pid: int
    own_pid: int
    gpu: str | None
    job: str
    world_size: int | None
    states: tuple[str, ...] = ()
    cpu: float | None = None
    written_s: float | None = None
    read_s: float | None = None
    wchan: str | None = None
    tracer: int | None = None
    doing: Activity | None = None
    moved: bool | None = None
    shifted: bool | None = None
    waited: bool = False
    children: tuple[dict[str, Any], ...] = ()
    child_activity: Activity | None = None
    blocked: tuple[dict[str, Any], ...] = ()
    sockets: tuple[dict[str, str], ...] = ()
    log_grew: bool | None = None
    computes: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """Of the last look."""
        return self.states[-1] if self.states else "?"

    @property
    def is_stopped(self) -> bool:
        """Stopped in both looks."""
        return bool(self.states) and all(state in ("T", "t") for state in self.states)

    @property
    def is_ended(self) -> bool:
        """No longer there."""
        return self.state in (*ENDED, "Z", "X")

    @property
    def in_kernel(self) -> bool:
        """In state D in both looks, or one of its threads or children, and nothing was read or
        written meanwhile."""
        quiet = not (self.written_s or self.read_s)
        return quiet and bool(self.states) and all(state == "D" for state in self.states)


def rank_looks(documents: Sequence[Mapping[str, Any]]) -> list[RankLook]:
    """One for each rank of each document, in the order of ranks."""
    found = [look for document in documents for look in _of_document(document)]
    return sorted(found, key=lambda look: (look.rank is None, look.rank or 0, look.host))


def section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section of an evidence document, {} without it."""
    sections = document.get("sections")
    found = sections.get(name) if isinstance(sections, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def rows(value: Any) -> list[Mapping[str, Any]]:
    """The maps in a list, [] for anything else."""
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, list) else []


def host_of(document: Mapping[str, Any]) -> str:
    """The name that the node was asked by, else its own."""
    collector = document.get("collector")
    own = collector.get("host") if isinstance(collector, Mapping) else None
    return str(document.get("asked_as") or own or "?")


def _of_document(document: Mapping[str, Any]) -> Iterator[RankLook]:
    proc, stacks = section(document, "proc"), section(document, "stacks")
    firsts, seconds = (_by_pid(proc.get(f"ranks_{number}")) for number in (1, 2))
    seconds_between = (
        max(0.1, number_of(proc.get("at_2_s")) - number_of(proc.get("at_1_s")))
        if proc.get("at_2_s")
        else 1.0
    )
    dumps, later = _by_pid(stacks.get("processes")), _by_pid(stacks.get("processes_2"))
    sockets = _by_pid(section(document, "sockets").get("ranks"))
    gpus, busy_gpus = _gpus(document), computing_gpus(document)
    for place, row in enumerate(rows(document.get("ranks"))):
        pid = row.get("pid")
        if not isinstance(pid, int) or isinstance(pid, bool):
            continue
        first, second = firsts.get(pid, {}), seconds.get(pid, firsts.get(pid, {}))
        frames, frames_later = _main_frames(dumps.get(pid)), _main_frames(later.get(pid))
        own, own_later = user_frames(frames), user_frames(frames_later)
        is_known = bool(frames and frames_later)
        children = tuple(_children(first, second))
        workers = [
            activity_of(_main_frames(dump))
            for other, dump in dumps.items()
            if dump.get("of") == pid and other != pid
        ]
        yield RankLook(
            rank=_whole(row.get("rank")), host=host_of(document), pid=pid,
            own_pid=_whole(row.get("own_pid")) or pid, gpu=gpus.get(pid),
            job=str(row.get("job")), world_size=_whole(row.get("world_size")),
            states=tuple(str(one["state"]) for one in (firsts.get(pid), seconds.get(pid)) if one),
            cpu=_rate(first, second, "cpu_s", seconds_between),
            written_s=_io_rate(first, second, "write_bytes", seconds_between),
            read_s=_io_rate(first, second, "read_bytes", seconds_between),
            wchan=second.get("wchan"), tracer=_whole(second.get("tracer")),
            doing=activity_of(frames_later or frames),
            moved=own != own_later if is_known else None,
            shifted=function_names(own) != function_names(own_later) if is_known else None,
            waited=_waited(first, second), children=children,
            child_activity=next((one for one in workers if one), None),
            blocked=tuple(map(dict, rows(second.get("threads_blocked")))),
            sockets=tuple({name: str(value) for name,
            value in one.items()} for one in rows(sockets.get(pid, {}).get("sockets"))),
            log_grew=_log_grew(proc, place), computes=gpus.get(pid) in busy_gpus,
            settings=row["settings"] if isinstance(row.get("settings"), Mapping) else {},
        )  # fmt: skip


def _by_pid(value: Any) -> dict[int, Mapping[str, Any]]:
    return {row["pid"]: row for row in rows(value) if isinstance(row.get("pid"), int)}


def number_of(value: Any) -> float:
    """A number of a node's, 0 for anything else."""
    return (
        float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18
        else 0.0
    )


def _whole(value: Any) -> int | None:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
        else None
    )


def _rate(
    first: Mapping[str, Any], second: Mapping[str, Any], name: str, seconds: float
) -> float | None:
    if (
        first is second
        or not isinstance(first.get(name), (int, float))
        or not isinstance(second.get(name), (int, float))
    ):
        return None
    return max(0.0, (number_of(second[name]) - number_of(first[name])) / seconds)


def _waited(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether the main thread was never switched between two looks that saw it asleep."""
    asleep = first is not second and first.get("state") == second.get("state") == "S"
    return (
        asleep
        and first.get("switches") is not None
        and first.get("switches") == second.get("switches")
    )


def _io_rate(
    first: Mapping[str, Any], second: Mapping[str, Any], name: str, seconds: float
) -> float | None:
    before, after = first.get("io"), second.get("io")
    return (
        _rate(before, after, name, seconds)
        if isinstance(before, Mapping) and isinstance(after, Mapping)
        else None
    )


def _main_frames(dump: Mapping[str, Any] | None) -> list[str]:
    threads = rows((dump or {}).get("threads"))
    frames = threads[0].get("frames") if threads else None
    return [str(frame) for frame in frames] if isinstance(frames, list) else []


def _children(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    before = _by_pid(first.get("children"))
    for pid, row in _by_pid(second.get("children")).items():
        then = before.get(pid)
        took = (
            number_of(row.get("cpu_s")) - number_of(then.get("cpu_s"))
            if then
            else number_of(row.get("cpu_s"))
        )
        yield {
            "pid": pid,
            "command": str(row.get("command")),
            "state": str(row.get("state")),
            "wchan": row.get("wchan"),
            "took_s": took,
            "is_new": not then,
        }


def _log_grew(proc: Mapping[str, Any], place: int) -> bool | None:
    sizes = [proc.get(f"log_bytes_{number}") for number in (1, 2)]
    values = [
        size[place] if isinstance(size, list) and place < len(size) else None for size in sizes
    ]
    return None if None in values else values[0] != values[1]


def computing_gpus(document: Mapping[str, Any]) -> set[str]:
    """GPUs that moved memory in both looks. A GPU that waits in NCCL's kernel shows 100 %
    utilisation and no memory activity (measured on H100)."""
    looks = [rows(section(document, "nvml").get(f"gpus_{number}")) for number in (1, 2)]
    busy = [
        {
            f"GPU {gpu.get('index')}"
            for gpu in look
            if number_of(gpu.get("memory_activity_percent")) >= 1
        }
        for look in looks
    ]
    return busy[0] & busy[1]


def _gpus(document: Mapping[str, Any]) -> dict[int, str]:
    """{pid: GPU 3} by the driver's own list."""
    found: dict[int, str] = {}
    for gpu in rows(section(document, "nvml").get("gpus_1")):
        processes = gpu.get("processes")
        for row in processes if isinstance(processes, list) else []:
            if isinstance(row, list) and row and isinstance(row[0], int):
                found.setdefault(row[0], f"GPU {gpu.get('index')}")
    return found
