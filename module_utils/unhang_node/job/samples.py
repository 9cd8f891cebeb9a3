"""Samples of a running job as lines of `unhang/trace/1`: a header, then what RAS, the driver, /proc
and the log say at each tick. Read by the detector, live and recorded.

    {"schema": "unhang/trace/1", "host": …, "ranks": [{"rank", "pid", "world_size"}], "every_s":
    1.0, "at": …, "left_out": []}
    {"t": 3.0, "ras": {"counts": {"0": 61, "1": 60}, "missing": []}}
    or {"t", "ras": null, "why"}
    {"t": 3.0, "gpu": 0, "utilization_percent", "memory_activity_percent", "power_w",
    "clock_sm_mhz", "throttle", "pids"} {"t": 3.0, "pid": 4711, "rank": 1, "state", "cpu_s",
    "switches", "read_bytes", "write_bytes", "children", "children_cpu_s", "disk_bytes",
    "call_bytes", "calls", "compilers", "socket_bytes_s", "arrived_bytes_s",
    "arrived_from", "arrived_below" (each 10 s)} {"t": 3.0, "nic": "eth0",
    "carrier_changes": 2, "up": true} {"t": 3.0, "log": "2049:77", "log_bytes": 1024}
"""

from __future__ import annotations

import socket
import sys
import time

from ..base.context import Context, no_mark
from ..base.document import encode
from ..base.nvml.calls import Asking, Lost
from ..base.nvml.live import LiveSession
from ..base.parse.values import parse_json
from ..base.program import load_nvidia_ml_py
from ..base.root import Root
from ..base.section import Absent, Denied, Unread, one_line
from ..facts.sections.reading import line_if_there, names_if_there, text_if_there
from .finding import read_ranks
from .gpus import work_of_gpu
from .looks import GONE, REUSED, log_of
from .pace import counts_by_rank
from .parse.process_state import parse_io, parse_switches
from .process_table import TICKS, descendants, read_stats, read_stats_again, stat_of, tops, work_of
from .ras import ask, services_of
from .tcp_bytes import Carried

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from .parse.process_state import Stat

SCHEMA = "unhang/trace/1"
MOST_NICS = 64
# between two searches for ranks, each of which reads the environment of every process
SEARCH_S = 10.0
SOCKETS_S = 10.0  # between two looks at all sockets
GPU_FIELDS = (
    "utilization_percent",
    "memory_activity_percent",
    "power_w",
    "clock_sm_mhz",
    "throttle",
)


def header_of(
    host: str, ranks: list[dict[str, Any]], every_s: float, now_s: float, left_out: list[str]
) -> dict[str, Any]:
    """The first line of a trace. left_out: which ranks are not among them, and why."""
    rows = [
        {name: row.get(name) for name in ("rank", "pid", "own_pid", "world_size", "started")}
        for row in ranks
    ]
    return {
        "schema": SCHEMA,
        "host": host,
        "ranks": rows,
        "every_s": every_s,
        "at": round(now_s, 3),
        "left_out": left_out,
    }


def process_samples(
    root: Root,
    ranks: list[dict[str, Any]],
    t: float,
    stats: dict[int, Stat] | None = None,
    below: dict[int, list[int]] | None = None,
    rates: dict[int, dict[str, Any]] | None = None,
) -> Iterator[dict[str, Any]]:
    """A line for each rank, and for each file that they log to. stats: the processes, where they
    are known, and those below each rank; rates: of Carried, where the sockets were looked at."""
    stats = read_stats(root) if stats is None else stats
    below = descendants(stats, [row["pid"] for row in ranks]) if below is None else below
    rates = rates or {}
    for row in ranks:
        yield {
            "t": t,
            "pid": row["pid"],
            "rank": row["rank"],
            **_process(root, row, stats, below[row["pid"]]),
            **rates.get(row["pid"], {}),
        }
    yield from _log_sample(root, [row["pid"] for row in ranks], t)


def _log_sample(root: Root, pids: Iterable[int], t: float) -> Iterator[dict[str, Any]]:
    logs = dict(filter(None, (log_of(root, pid) for pid in pids)))
    for name, size in logs.items():
        yield {"t": t, "log": name, "log_bytes": size}


def _process(
    root: Root, row: dict[str, Any], stats: dict[int, Stat], below: list[int]
) -> dict[str, Any]:
    if not runs(row, stats):
        return {"state": REUSED if row["pid"] in stats else GONE}
    stat = stats[row["pid"]]
    io = parse_io(text_if_there(root, f"/proc/{row['pid']}/io"))
    return {
        "state": stat.state,
        "cpu_s": stat.cpu_ticks / TICKS,
        "switches": parse_switches(text_if_there(root, f"/proc/{row['pid']}/status")),
        "read_bytes": io.get("read_bytes"),
        "write_bytes": io.get("write_bytes"),
        "children": len(below),
        **work_of(root, stats, row["pid"], below),
    }


def ras_sample(root: Root, ranks: list[dict[str, Any]], t: float) -> dict[str, Any]:
    """What RAS counts, by rank of the largest communicator; null with the reason where it does not
    answer."""
    why = "no rank"
    for service in services_of(root, ranks):
        try:
            answer = ask(root, service, no_mark, 3)[0]
        except (OSError, ValueError, Absent) as problem:
            why = one_line(problem) if why == "no rank" or isinstance(problem, Denied) else why
            continue
        return {"t": t, "ras": _counted(answer)}
    return {"t": t, "ras": None, "why": why}


def _counted(answer: dict[str, Any]) -> dict[str, Any]:
    rows = answer["communicators"]
    largest = max((row["size"] for row in rows), default=0)
    names = {
        (one[1], one[2]): one[0]
        for row in rows
        if row["size"] == largest
        for one in (*row["members"], *row["missing"])
    }
    counts: dict[str, int] = {}
    for row in rows:
        of = {one[0]: names.get((one[1], one[2])) for one in row["members"]}
        for rank, ops in counts_by_rank(row, False).items():
            name = str(of.get(rank))
            counts[name] = counts.get(name, 0) + sum(ops.values())
    gone = {(one[1], one[2]) for row in rows for one in row["missing"]}
    return {"counts": counts, "missing": sorted(names[one] for one in gone if one in names)}


def nic_samples(root: Root, t: float) -> Iterator[dict[str, Any]]:
    """A line for each network interface that has a link of its own. Those of containers (veth),
    VLANs and bridges change with what is started on the node."""
    folder = "/sys/class/net"
    for name in names_if_there(root, folder)[:MOST_NICS]:
        values = {
            one: line_if_there(root, f"{folder}/{name}/{one}") or ""
            for one in ("ifindex", "iflink", "carrier_changes", "carrier")
        }
        is_own = (
            values["ifindex"] == values["iflink"]
            and name != "lo"
            and "bridge" not in names_if_there(root, f"{folder}/{name}")
        )
        if is_own and values["carrier_changes"].isdigit():
            yield {
                "t": t,
                "nic": name,
                "carrier_changes": int(values["carrier_changes"]),
                "up": values["carrier"] == "1",
            }


def gpu_sample(asking: Asking, index: int, t: float, rank_of: dict[int, int]) -> dict[str, Any]:
    """One GPU; {"lost": why} when it no longer answers. A process below a rank is in pids under
    the rank's own."""
    try:
        row = work_of_gpu(asking)
    except Lost as problem:
        return {"t": t, "gpu": index, "lost": str(problem)}
    pids = list(dict.fromkeys(rank_of.get(one[0], one[0]) for one in row["processes"] or []))
    return {"t": t, "gpu": index, **{name: row[name] for name in GPU_FIELDS}, "pids": pids}


def main() -> int:
    """The sampler as a process of its own: a call of the driver that never returns stops only it.
    argv: the options of read_ranks as JSON, seconds between samples, and `no-driver` where the
    driver is not to be asked."""
    return write_samples(
        parse_json(sys.argv[1]), float(sys.argv[2]), "no-driver" not in sys.argv[3:]
    )


def write_samples(options: dict[str, Any], every_s: float, asks_driver: bool = True) -> int:
    """Lines on stdout until the process of options["pids"] is gone or nobody reads them. options:
    of read_ranks; without a process it goes on until it is ended, as the step of a job is."""
    asking = open_driver() if asks_driver else None
    root, begun = Root(), time.monotonic()
    job = Watched(root, options)
    is_there = _presence(root, options.get("pids") or [])
    try:
        while is_there():
            t = round(time.monotonic() - begun, 2)
            if job.has_other_ranks(t):
                host, now_s = socket.gethostname(), time.time()
                write_line(header_of(host, job.ranks, every_s, now_s, job.left_out))
            for line in _moment(job, asking, t):
                write_line(line)
            time.sleep(max(0.1, every_s - (time.monotonic() - begun - t)))
    except BrokenPipeError:
        pass
    return 0


class Sampled:
    """The processes of a node, and those below some, as they were in the last sample, so that the
    next one reads only what may have changed."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.stats: dict[int, Stat] = {}
        self.below: dict[int, list[int]] = {}
        self.carried = Carried(root, SOCKETS_S)

    def read_again(self, tops: list[int]) -> None:
        """Those that are none of `tops` and not below one may stay as they were up to SEARCH_S
        ago."""
        watched = {*tops, *(pid for pids in self.below.values() for pid in pids)}
        self.stats = read_stats_again(self.root, self.stats, watched)
        self.below = descendants(self.stats, tops)


class Watched(Sampled):
    """One job."""

    def __init__(self, root: Root, options: dict[str, Any]) -> None:
        super().__init__(root)
        self.options = options
        self.ranks: list[dict[str, Any]] = []
        self.left_out: list[str] = []
        self._unranked: list[int] = []
        self._found: list[int] = []
        self._is_settled, self._searched = False, 0.0

    def has_other_ranks(self, t: float) -> bool:
        """Searches for ranks: while there are none, until two searches agree, when one has gone,
        and now and then. Whether others are watched from now on."""
        if (
            self.ranks
            and self._is_settled
            and t - self._searched < SEARCH_S
            and all(runs(row, self.stats) for row in self.ranks)
        ):
            return False
        processes, self.left_out = processes_of(self.root, self.options)
        found = [row for row in processes if row["rank"] is not None]
        self._unranked = (
            [row["pid"] for row in processes if row["rank"] is None]
            if self.options.get("pids")
            else []
        )
        pids = [row["pid"] for row in found]
        self._is_settled, self._found, self._searched = pids == self._found, pids, t
        self.stats = {}
        if not replaces(found, self.ranks):
            return False
        self.ranks = found
        return True

    def unranked(self) -> set[int]:
        """The processes that were named, and those below them, where none has a rank."""
        self.read_again(self._unranked)
        return {*self._unranked, *(pid for pids in self.below.values() for pid in pids)}


def runs(row: dict[str, Any], stats: dict[int, Stat]) -> bool:
    """Whether the process of a rank is there, and no other one by now."""
    return row["pid"] in stats and stats[row["pid"]].started == row["started"]


def replaces(found: list[dict[str, Any]], ranks: list[dict[str, Any]]) -> bool:
    """Whether the job has other ranks now. Fewer of the same are those that are left; the next step
    of a job may have fewer of its own."""
    now, before = [row["pid"] for row in found], [row["pid"] for row in ranks]
    return bool(now) and now != before and (len(now) >= len(before) or not set(now) & set(before))


def _presence(root: Root, pids: list[int]) -> Callable[[], bool]:
    started = [(pid, stat.started) for pid in pids for stat in [stat_of(root, pid)] if stat]

    def is_there() -> bool:
        stats = [(stat_of(root, pid), when) for pid, when in started]
        return len(started) == len(pids) and all(
            stat and stat.started == when and stat.state != "Z" for stat, when in stats
        )

    return is_there


def _moment(job: Watched, asking: Asking | None, t: float) -> Iterator[dict[str, Any]]:
    if not job.ranks:
        yield {"t": t, "waiting": "no rank yet"}
        pids = job.unranked()
        yield from _log_sample(job.root, sorted(pids), t)
        # as own_gpus: where others have memory on a GPU, what it does is not known
        yield from (
            line
            for line in gpu_samples(asking, t, {})
            if (found := set(line.get("pids", ()))) and found <= pids
        )
        return
    yield ras_sample(job.root, job.ranks, t)
    job.read_again([row["pid"] for row in job.ranks])
    rates = job.carried.rates(job.ranks, job.below)
    yield from process_samples(job.root, job.ranks, t, job.stats, job.below, rates)
    yield from nic_samples(job.root, t)
    yield from gpu_samples(asking, t, tops(job.below))


def write_line(line: dict[str, Any]) -> None:
    """A line on stdout, at once."""
    sys.stdout.write(encode(line) + "\n")
    sys.stdout.flush()


def processes_of(root: Root, options: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """(rows of read_ranks, which it left out and why); [] where there is none."""
    context = Context(root, {"pids": [], "skipped": [], **options}, (), None)
    try:
        pieces = list(read_ranks(context))
    except (OSError, Absent):
        return [], []
    return (
        [row for piece in pieces for row in piece[1].get("ranks", [])],
        [row["reason"] for piece in pieces for row in piece[2]],
    )


def open_driver(mark: Callable[..., None] = no_mark) -> Asking | None:
    """None where it cannot be asked. mark: called before each of its calls."""
    try:
        session = LiveSession(load_nvidia_ml_py())
        session.nvmlInit()
    except Exception:  # no driver, no library, or one that refuses: the job is watched without it
        return None
    _give_memory_back()
    return Asking(session, mark, Unread())


def _give_memory_back() -> None:
    """Where nvidia-ml-py lies without compiled code, compiling it leaves 10 MB behind that only the
    C library can return."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's own; musl has none
    if trim is not None:
        trim(0)


def gpu_samples(
    asking: Asking | None, t: float, rank_of: dict[int, int]
) -> Iterator[dict[str, Any]]:
    """A line for each GPU of the node. rank_of: {process below a rank: the rank's pid}."""
    for index in range(asking.session.nvmlDeviceGetCount() if asking else 0):
        if asking:
            handle = asking.session.nvmlDeviceGetHandleByIndex(index)
            yield gpu_sample(asking.about("", f"GPU {index}", handle=handle), index, t, rank_of)


if __name__ == "__main__":
    sys.exit(main())
