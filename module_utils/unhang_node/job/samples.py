"""Samples of a running job as lines of `unhang/trace/1`: a header, then what RAS, the driver, /proc and the log say at each tick. Read by the detector,
live and recorded.

    {"schema": "unhang/trace/1", "host": …, "ranks": [{"rank", "pid", "world_size"}], "every_s": 1.0, "at": …}
    {"t": 3.0, "ras": {"counts": {"0": 61, "1": 60}, "ops": {…}, "missing": [], "starting": []}}      or {"t", "ras": null, "why"}
    {"t": 3.0, "gpu": 0, "utilization_percent", "memory_activity_percent", "power_w", "clock_sm_mhz", "throttle", "pids"}
    {"t": 3.0, "pid": 4711, "rank": 1, "state", "cpu_s", "switches", "read_bytes", "write_bytes", "children", "children_cpu_s", "compilers"}
    {"t": 3.0, "log_bytes": 1024}
"""

from __future__ import annotations

import socket
import sys
import time

from ..command import load_nvidia_ml_py
from ..context import Context, no_mark
from ..document import encode
from ..nvml.calls import Asking, Lost
from ..nvml.live import LiveSession
from ..parse.process_state import parse_io, parse_switches
from ..parse.ras import parse_ras
from ..root import Root
from ..section import Absent, Unread, one_line
from .finding import ancestors, read_ranks, read_stats, stat_of
from .gpus import look_at_gpu
from .looks import GONE, REUSED, TICKS, log_size_of, text_or_empty
from .ras import ask, ras_addresses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..parse.process_state import Stat

SCHEMA = "unhang/trace/1"
COMPILERS = ("nvcc", "cicc", "ptxas", "ninja", "cc1plus", "g++", "gcc", "ld", "cudafe++", "fatbinary", "clang", "clang++")
GPU_FIELDS = ("utilization_percent", "memory_activity_percent", "power_w", "clock_sm_mhz", "throttle")


def header_of(host: str, ranks: list[dict[str, Any]], every_s: float, now_s: float) -> dict[str, Any]:
    """The first line of a trace."""
    rows = [{name: row.get(name) for name in ("rank", "pid", "own_pid", "world_size", "started")} for row in ranks]
    return {"schema": SCHEMA, "host": host, "ranks": rows, "every_s": every_s, "at": round(now_s, 3)}


def process_samples(root: Root, ranks: list[dict[str, Any]], t: float) -> Iterator[dict[str, Any]]:
    """A line for each rank, and one for the log."""
    stats = read_stats(root)
    for row in ranks:
        yield {"t": t, "pid": row["pid"], "rank": row["rank"], **_process(root, row, stats)}
    sizes = [size for row in ranks for size in [log_size_of(root, row["pid"])] if size is not None]
    if sizes:
        yield {"t": t, "log_bytes": sum(sizes)}


def _process(root: Root, row: dict[str, Any], stats: dict[int, Stat]) -> dict[str, Any]:
    stat = stats.get(row["pid"])
    if stat is None or stat.started != row["started"]:
        return {"state": REUSED if stat else GONE}
    below = [stats[pid] for pid in stats if pid != row["pid"] and row["pid"] in ancestors(stats, pid)]
    io = parse_io(text_or_empty(root, row["pid"], "io"))
    return {
        "state": stat.state,
        "cpu_s": stat.cpu_ticks / TICKS,
        "switches": parse_switches(text_or_empty(root, row["pid"], "status")),
        "read_bytes": io.get("read_bytes"),
        "write_bytes": io.get("write_bytes"),
        "children": len(below),
        "children_cpu_s": sum(one.cpu_ticks for one in below) / TICKS,
        "compilers": sum(one.command in COMPILERS for one in below),
    }


def ras_sample(ranks: list[dict[str, Any]], t: float, tries: int = 3) -> dict[str, Any]:
    """What RAS counts, by rank of the largest communicator; null with the reason where it does not answer."""
    why = "no rank"
    for address in ras_addresses(ranks):
        try:
            answer = parse_ras(ask(address, lambda *_: None, tries)[0])
        except (OSError, ValueError, Absent) as problem:
            why = one_line(problem)
            continue
        return {"t": t, "ras": _counted(answer)}
    return {"t": t, "ras": None, "why": why}


def _counted(answer: dict[str, Any]) -> dict[str, Any]:
    rows = answer["communicators"]
    largest = max((row["size"] for row in rows), default=0)
    names = {(one[1], one[2]): one[0] for row in rows if row["size"] == largest for one in (*row["members"], *row["missing"])}
    counts: dict[str, int] = {}
    operations: dict[str, dict[str, int]] = {}
    for row in rows:
        of = {one[0]: names.get((one[1], one[2])) for one in row["members"]}
        for group in row["counts"]:
            for rank in group["ranks"]:
                name = str(of.get(rank))
                counts[name] = counts.get(name, 0) + sum(group["ops"].values())
                for op, count in group["ops"].items():
                    operations.setdefault(op, {})[name] = operations.get(op, {}).get(name, 0) + count
    uneven = {op: by_rank for op, by_rank in operations.items() if len({by_rank.get(name, 0) for name in counts}) > 1}
    missing = sorted({names[one[1], one[2]] for row in rows for one in row["missing"] if (one[1], one[2]) in names})
    return {"counts": counts, "uneven": uneven, "missing": missing, "starting": sorted({rank for row in rows for rank in row["starting"]})}


def gpu_sample(asking: Asking, index: int, t: float) -> dict[str, Any]:
    """One GPU; {"lost": why} when it no longer answers."""
    try:
        row = look_at_gpu(asking, index)
    except Lost as problem:
        return {"t": t, "gpu": index, "lost": str(problem)}
    pids = [one[0] for one in row["processes"] or []]
    return {"t": t, "gpu": index, **{name: row[name] for name in GPU_FIELDS}, "pids": pids}


def main() -> int:
    """The sampler as a process of its own: a call of the driver that never returns stops only it. argv: the process of the job, seconds between samples,
    and `no-driver` where the driver is not to be asked. Lines on stdout until the process is gone or nobody reads them."""
    pid, every_s = int(sys.argv[1]), float(sys.argv[2])
    asking = None if "no-driver" in sys.argv[3:] else _open_driver()
    root, begun = Root(), time.monotonic()
    ranks: list[dict[str, Any]] = []
    started = stat_of(root, pid)
    while started and (now := stat_of(root, pid)) and now.started == started.started and now.state != "Z":
        t = round(time.monotonic() - begun, 2)
        found = _ranks_of(root, pid)
        if found and [row["pid"] for row in found] != [row["pid"] for row in ranks] and len(found) >= len(ranks):
            ranks = found
            _write(header_of(socket.gethostname(), ranks, every_s, time.time()))
        if ranks:
            _write(ras_sample(ranks, t))
            for line in process_samples(root, ranks, t):
                _write(line)
            for line in _gpu_samples(asking, t):
                _write(line)
        else:
            _write({"t": t, "waiting": "no rank yet"})
        time.sleep(max(0.1, every_s - (time.monotonic() - begun - t)))
    return 0


def _write(line: dict[str, Any]) -> None:
    sys.stdout.write(encode(line) + "\n")
    sys.stdout.flush()


def _ranks_of(root: Root, pid: int) -> list[dict[str, Any]]:
    context = Context(root, {"pids": [pid], "skipped": []}, (), None)
    try:
        return [row for piece in read_ranks(context) for row in piece[1].get("ranks", []) if row["rank"] is not None]
    except (OSError, Absent):
        return []


def _open_driver() -> Asking | None:
    try:
        session = LiveSession(load_nvidia_ml_py())
        session.nvmlInit()
    except Exception:  # no driver, no library, or one that refuses: the job is watched without it
        return None
    return Asking(session, no_mark, Unread())


def _gpu_samples(asking: Asking | None, t: float) -> Iterator[dict[str, Any]]:
    for index in range(asking.session.nvmlDeviceGetCount() if asking else 0):
        if asking:
            yield gpu_sample(asking.about("", str(index), handle=asking.session.nvmlDeviceGetHandleByIndex(index)), index, t)


if __name__ == "__main__":
    sys.exit(main())
