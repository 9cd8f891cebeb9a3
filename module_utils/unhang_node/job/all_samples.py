"""Samples of all jobs of this node, or of all that its user may read: one pass over the processes,
the driver and the sockets for all of them together. A line of JSON for each moment:

    {"t": 4.0, "host": …, "came": [{"job", "header", "slurm_job", "pods": [uid, …], "user",
    "is_off"}], "ended": [job], "failed": {job: why}, "problem": why no job was searched for, or
    null, "left_out": [which ranks are not watched, and why], "jobs": {job: [sample, …]}, "gpus":
    [sample, …], "nics": [sample, …]}

A job is named as finding.py groups ranks; header and samples are those of samples.py. Only
processes with the variables of a rank count, or the title of an engine's worker: a notebook or
another server has neither.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import sys
import time

from ..base.context import Context
from ..base.named_tuple import NamedTuple
from ..base.root import Root
from ..base.section import Absent, one_line
from ..facts.sections.reading import text_if_there
from .finding import candidates_of, person_of, slurm_steps
from .process_table import ancestors, descendants, read_stats, tops
from .ras import services_of
from .samples import (
    SEARCH_S,
    Sampled,
    gpu_samples,
    header_of,
    nic_samples,
    open_driver,
    process_samples,
    processes_of,
    ras_sample,
    replaces,
    runs,
    write_line,
)
from .tcp_bytes import listened_ports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..base.nvml.calls import Asking
    from .parse.process_state import Stat

    Key = tuple[int, int]  # pid and start

# A process has its parent's environment until it executes its own program, and its libraries later.
YOUNG_S = 30.0
ALL_S = 120.0  # between two searches that read every process again
RAS_EVERY_S = 5.0
# The kernel's table of sockets, which shows who answers, takes long to read: RAS is asked so rarely
# that this comes to little, but at least each RAS_MOST_S; a slow one waits for RAS_SLOW times that.
RAS_SHARE, RAS_MOST_S, RAS_SLOW = 400.0, 20.0, 4.0
RAS_S = 6.0  # of one moment, for all jobs
# The processes of several jobs share a port, so a try may land on another job's.
RAS_KEPT_S = 30.0
MARK_BYTES = 256
OFF = "UNHANG_WATCH"
POD = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})\b")


class Job:
    """The ranks of a job as they were found last, and what RAS said of it last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ranks: list[dict[str, Any]] = []
        self.slurm_job: str | None = None
        self.ras: dict[str, Any] = {"ras": None}
        self.ras_due = self.ras_at = 0.0

    def is_alive(self, stats: dict[int, Stat]) -> bool:
        """Whether one of its ranks runs. The first process of a container may never wait for
        others: what they leave is no job."""
        return any(
            runs(row, stats) and stats[row["pid"]].state not in ("Z", "X") for row in self.ranks
        )

    def is_off(self) -> bool:
        """Whether all of its ranks are to be left out: a stranger's that claims to be of the job
        silences none."""
        return all(row["settings"].get(OFF) == "off" for row in self.ranks)


class Changes(NamedTuple):
    """Jobs that have other ranks than before, and names of those that have ended."""

    came: list[Job]
    ended: list[str]


class Node(Sampled):
    """The jobs of this node. skipped: processes whose files did not answer."""

    def __init__(self, root: Root, skipped: list[int]) -> None:
        super().__init__(root)
        self.skipped = skipped
        self.jobs: dict[str, Job] = {}
        self.left_out: list[str] = []
        self._seen: dict[Key, float] = {}
        self._claims: dict[Key, tuple[str, int | None]] = {}
        self._gone: set[int] = set()
        self._searched = self._read_all = self._settled = -ALL_S

    def read(self, t: float) -> None:
        """Reads the processes anew: those of jobs and new ones, now and then all."""
        if t - self._read_all >= ALL_S:
            self.stats, self._read_all, self._searched = read_stats(self.root), t, -ALL_S
            self._seen.clear()
            self.below = descendants(self.stats, self._tops())
        else:
            self.read_again(self._tops())

    def _tops(self) -> list[int]:
        return [row["pid"] for job in self.jobs.values() for row in job.ranks]

    def search(self, t: float) -> Changes:
        """Looks for ranks where processes may have become some: among those that are young, and
        among all now and then or where one of a job has gone."""
        if t - self._searched < SEARCH_S:
            return Changes([], [])
        self._searched = t
        claims, gone = set(self._claims.values()), self._gone
        self._read_claims(t)
        self._gone = {
            row["pid"]
            for job in self.jobs.values()
            for row in job.ranks
            if not runs(row, self.stats)
        }
        if self._gone != gone or set(self._claims.values()) != claims:
            self._settled = t + YOUNG_S
        if t > self._settled and t != self._read_all:
            return Changes([], self._ended())
        return Changes(self._found(), self._ended())

    def _read_claims(self, t: float) -> None:
        keys = {(pid, stat.started) for pid, stat in self.stats.items()}
        due = {key for key in keys if t - self._seen.setdefault(key, t) < YOUNG_S}
        self._seen = {key: at for key, at in self._seen.items() if key in keys}
        context = Context(self.root, {"skipped": self.skipped}, (), None)
        found, _ = candidates_of(context, self.stats, dict.fromkeys(pid for pid, _ in due))
        self._claims = {
            **{key: claim for key, claim in self._claims.items() if key in keys - due},
            **{(one.pid, one.stat.started): (one.job, one.rank) for one in found},
        }

    def _found(self) -> list[Job]:
        options = {"skipped": self.skipped, "ranked": True}
        rows: dict[str, list[dict[str, Any]]] = {}
        found, self.left_out = processes_of(self.root, options) if self._claims else ([], [])
        for row in found:
            rows.setdefault(row["job"], []).append(row)
        self.stats = read_stats(self.root)  # slurmstepd began as slurmd
        steps, came = slurm_steps(self.root, self.stats), []
        for name, found in rows.items():
            job = self.jobs.setdefault(name, Job(name))
            if replaces(found, job.ranks):
                job.ranks, job.slurm_job = found, self._slurm_job_of(found, steps)
                came.append(job)
        self.below = descendants(self.stats, self._tops())
        return came

    def _slurm_job_of(
        self, ranks: list[dict[str, Any]], steps: dict[int, str | None]
    ) -> str | None:
        """The job of Slurm in whose steps all of them run. Their environment is no proof of it: any
        user can set that."""
        numbers = {
            next((steps[pid] for pid in ancestors(self.stats, row["pid"]) if pid in steps), None)
            for row in ranks
        }
        return numbers.pop() if len(numbers) == 1 else None

    def _ended(self) -> list[str]:
        """Forgets jobs none of whose ranks is left. A job of Slurm may have none between two steps:
        it has ended here when no step of it is left either."""
        quiet = [job for job in self.jobs.values() if not job.is_alive(self.stats)]
        fresh = read_stats(self.root) if any(job.slurm_job for job in quiet) else {}
        steps = set(slurm_steps(self.root, fresh).values())
        ended = [job.name for job in quiet if not (job.slurm_job and job.slurm_job in steps)]
        for name in ended:
            del self.jobs[name]
        return ended

    def rates(self) -> dict[int, dict[str, Any]]:
        """Bytes a second of sockets by rank's pid."""
        rows = [row for job in self.jobs.values() for row in job.ranks]
        return self.carried.rates(rows, self.below)

    def samples_of(
        self, job: Job, t: float, rates: dict[int, dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The samples of one job. Raises what its files raise."""
        return [
            {**job.ras, "t": t},
            *process_samples(self.root, job.ranks, t, self.stats, self.below, rates),
        ]

    def ask_ras(self, jobs: list[Job], until_s: float) -> None:
        """Asks RAS of the jobs, those first that wait longest. Of a job that is not asked, or whose
        RAS just did not answer, the last answer counts: in it nothing moves."""
        for job in sorted(jobs, key=lambda job: job.ras_due):
            begun = time.monotonic()
            if begun > until_s or begun < job.ras_due:
                continue
            ports = self._listened()
            is_there = ports is None or any(
                not service.is_here or _port(service.address) in ports
                for service in services_of(self.root, job.ranks)
            )
            answer = ras_sample(self.root, job.ranks, 0.0) if is_there else {"ras": None}
            now = time.monotonic()
            took = now - begun
            wait_s = max(RAS_EVERY_S, min(RAS_SHARE * took, RAS_MOST_S), RAS_SLOW * took)
            job.ras_due = now + wait_s
            if answer["ras"] is not None or now - job.ras_at > RAS_KEPT_S:
                job.ras, job.ras_at = answer, now

    def _listened(self) -> set[int] | None:
        """The ports at which somebody listens here; None where that is not known."""
        try:
            return listened_ports() if self.carried.is_there else None
        except (OSError, struct.error):
            return None


def _port(address: str) -> int | None:
    port = address.rpartition(":")[2]
    return int(port) if port.isdigit() and len(port) < 6 else None


def moment_of(node: Node, asking: Asking | None, t: float, every_s: float) -> dict[str, Any]:
    """What the line of one moment says."""
    node.read(t)
    changes, unsearched = Changes([], []), None
    try:
        changes = node.search(t)
    except (OSError, ValueError, LookupError, Absent) as found:
        unsearched = one_line(found)  # one process that cannot be read hides no job that is known
    watched = [job for job in node.jobs.values() if not job.is_off() and job.is_alive(node.stats)]
    node.ask_ras(watched, time.monotonic() + RAS_S)
    rates, samples, failed = node.rates(), {}, {}
    for job in watched:
        try:
            samples[job.name] = node.samples_of(job, t, rates)
        except (OSError, ValueError, LookupError, Absent) as problem:
            failed[job.name] = one_line(problem)  # a process that goes costs no other job's samples
    node.root.watch("the driver")
    host = socket.gethostname()
    return {
        "t": t,
        "host": host,
        "came": [_came(node.root, job, host, every_s) for job in changes.came],
        "ended": changes.ended,
        "failed": failed,
        "problem": unsearched,
        "left_out": node.left_out,
        "jobs": samples,
        "gpus": list(gpu_samples(asking, t, tops(node.below))) if samples else [],
        "nics": list(nic_samples(node.root, t)),
    }


def _came(root: Root, job: Job, host: str, every_s: float) -> dict[str, Any]:
    return {
        "job": job.name,
        "header": header_of(host, job.ranks, every_s, time.time(), []),
        "slurm_job": job.slurm_job,
        "pods": list(dict.fromkeys(_pods_of(root, job))),
        "user": " ".join(map(str, person_of(root, job.ranks[0]["pid"]))),
        "is_off": job.is_off(),
    }


def _pods_of(root: Root, job: Job) -> Iterator[str]:
    """The uid of each rank's pod, by its cgroup."""
    for row in job.ranks:
        pod = POD.search(text_if_there(root, f"/proc/{row['pid']}/cgroup", 65536))
        if pod:
            yield pod.group(1).replace("_", "-")


def main() -> int:
    """The sampler as a process of its own. argv: seconds between samples; the second of the
    monotonic clock from which it counts; a descriptor into whose file it writes which call comes
    next, so that whoever waits for it knows the one that does not return; processes to skip, as 1,2
    or nothing; `no-driver` where the driver is not to be asked."""
    every_s, begun, descriptor = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    skipped = [int(pid) for pid in sys.argv[4].split(",") if pid]
    root = Root()

    def mark(text: str) -> None:
        os.pwrite(descriptor, text.encode("utf-8", "replace")[:MARK_BYTES].ljust(MARK_BYTES), 0)

    root.watch = mark
    mark("the driver")
    asks = "no-driver" not in sys.argv[5:]
    asking = open_driver(lambda text, _allow_s=0.0: mark(text)) if asks else None
    node = Node(root, skipped)
    try:
        while True:
            t = round(time.monotonic() - begun, 2)
            write_line(moment_of(node, asking, t, every_s))
            time.sleep(max(0.1, every_s - (time.monotonic() - begun - t)))
    except BrokenPipeError:
        return 0
