"""How far each rank of a job is, fifty times in ten seconds: what RAS counts, and meanwhile the
work of the GPUs and the processor time of the ranks. Sums and medians leave the node, not looks.

RAS counts what was launched: the rank that its host keeps from launching is behind in most looks;
those that wait inside the collective are not.
"""

from __future__ import annotations

import time

from ..base.nvml.calls import Asking, Lost
from ..base.section import Absent, Denied, Unread, one_line, status_of_error
from ..facts.sections.reading import text_if_there
from .gpus import open_gpus, work_of_gpu
from .process_table import TICKS, descendants, read_stats, stat_of, tops
from .ras import ask, services_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..base.context import Context
    from ..base.section import SourcePiece
    from .ras import Service

LOOKS, EVERY_S = 50, 0.2
MOST_S = 12.0  # where RAS of a large job takes long to answer, there are fewer looks
MOST_ROWS = 4096  # ranks of all communicators together, those of the busiest first
MOST_NEIGHBOURS = 8
MEASURED = ("power_w", "clock_sm_mhz", "utilization_percent", "memory_activity_percent")


def read_pace(ctx: Context) -> Iterator[SourcePiece]:
    """Yields section pace: seconds, looks, answered and why (of RAS), version, form, communicators
    [{hash, size, launched, total, missing, ranks: [[rank, host, pid, gpu, behind, waits,
    longest]]}] as Launches has them, ranks [{pid, cpu_cores, run_queue}] in cores and as a share of
    the time, gpus [{index, name, looks, throttle: {reason: looks}, processes: [[pid, rank's pid,
    command]]} with medians of MEASURED]."""
    unread = Unread()
    cards = _Cards(ctx, unread)
    asked, launches = _Ras(ctx), Launches()
    ranks = ctx.options["ranks"]
    begun, before, looks = time.monotonic(), _used(ctx, ranks), 0
    while looks < LOOKS and time.monotonic() - begun < MOST_S:
        at, looks = time.monotonic(), looks + 1
        answer = asked.answer()
        if answer is not None:
            launches.add(answer)
        cards.look()
        wait_s = max(0.0, EVERY_S - (time.monotonic() - at))
        ctx.mark("the time between two looks", wait_s + 1)
        time.sleep(wait_s)
    seconds, after = time.monotonic() - begun, _used(ctx, ranks)
    fields = {
        "seconds": round(seconds, 2),
        "looks": looks,
        "answered": launches.looks,
        "why": asked.why,
        "version": launches.version,
        "form": launches.form,
        "communicators": launches.rows(),
        "ranks": [
            {"pid": pid, **_shares(before.get(pid), after.get(pid), seconds)}
            for pid in (row["pid"] for row in ranks)
        ],
        "gpus": cards.rows(),
    }
    yield "pace", fields, unread.rows


class _Ras:
    """The job's RAS. why: for the last look without an answer; who listens there and is not
    believed, or nobody, is not asked again."""

    def __init__(self, ctx: Context) -> None:
        self.ctx, self.why = ctx, None  # type: Context, str | None
        self.services: list[Service] = []
        if "ras" in ctx.options["without"]:
            self.why = "not asked for"
        else:
            self.services = [*services_of(ctx.root, ctx.options["ranks"])]

    def answer(self) -> dict[str, Any] | None:
        for service in list(self.services):
            try:
                found = ask(self.ctx.root, service, self.ctx.mark, 2)[0]
            except (Absent, Denied) as problem:
                self.services.remove(service)
                if self.why is None or isinstance(problem, Denied):
                    self.why = one_line(problem)
            except (OSError, ValueError) as problem:
                self.why = one_line(problem)
            else:
                self.services = [service]
                return found
        return None


class Launches:
    """What RAS counted, look by look. Ranks are compared within their communicator alone.

    Of a communicator: launched: operations of its most advanced rank from the first look to the
    last; total: since it began; missing: looks in which a rank did not answer. Of a rank: behind:
    looks in which another had launched more of an operation; waits: at how many different counts of
    its own; longest: looks of the longest of them. A checkpoint is one wait, a slow rank has many.
    """

    def __init__(self) -> None:
        self.looks = 0
        self.version: str | None = None
        self.form: str | None = None
        self._groups: dict[tuple[str, int], dict[str, Any]] = {}

    def add(self, answer: dict[str, Any]) -> None:
        """answer: of parse_ras."""
        self.looks += 1
        self.version, self.form = answer["version"], answer["form"]
        for row in answer["communicators"]:
            if not row["members"]:
                continue
            group = self._groups.setdefault(
                (row["hash"], row["size"]),
                {"first": None, "last": 0, "missing": 0, "ranks": {}},
            )
            self._add_row(group, row)

    def _add_row(self, group: dict[str, Any], row: dict[str, Any]) -> None:
        counts = counts_by_rank(row, self.form == "json")
        highest: dict[str, int] = {}
        for ops in counts.values():
            for op, count in ops.items():
                highest[op] = max(count, highest.get(op, 0))
        total = sum(highest.values())
        group["first"] = total if group["first"] is None else group["first"]
        group["last"] = max(group["last"], total)
        group["missing"] += bool(row["missing"])
        for rank, host, pid, gpu in row["members"]:
            waits = group["ranks"].setdefault((rank, host, pid, gpu), {})
            own = counts.get(rank, {})
            if any(count < highest[op] for op, count in own.items()):
                at = sum(own.values())
                waits[at] = waits.get(at, 0) + 1

    def rows(self) -> list[dict[str, Any]]:
        """The communicators, the busiest first."""
        found, rows = [], 0
        groups = sorted(self._groups.items(), key=lambda item: item[1]["first"] - item[1]["last"])
        for (name, size), group in groups:
            rows += len(group["ranks"])
            if rows > MOST_ROWS:
                break
            ranks = [
                [*place, sum(waits.values()), len(waits), max(waits.values(), default=0)]
                for place, waits in group["ranks"].items()
            ]
            found.append(
                {
                    "hash": name,
                    "size": size,
                    "launched": group["last"] - group["first"],
                    "total": group["last"],
                    "missing": group["missing"],
                    "ranks": ranks,
                }
            )
        return found


def counts_by_rank(row: dict[str, Any], is_whole: bool) -> dict[int, dict[str, int]]:
    """{rank: {operation: launched}} of a communicator. is_whole: an operation that a rank has no
    count of was never launched; the text form leaves out those that are even."""
    found: dict[int, dict[str, int]] = {}
    for group in row["counts"]:
        for rank in group["ranks"]:
            found.setdefault(rank, {}).update(group["ops"])
    if is_whole:
        names = {op for ops in found.values() for op in ops}
        found = {rank: {op: ops.get(op, 0) for op in names} for rank, ops in found.items()}
    return found


def _used(ctx: Context, ranks: list[dict[str, Any]]) -> dict[int, tuple[float, float | None]]:
    """{pid: (processor time of the process, time that its main thread waited for a processor)} in
    seconds."""
    found = {}
    for row in ranks:
        stat = stat_of(ctx.root, row["pid"])
        if stat and stat.started == row["started"]:
            # time on a processor and time runnable without one, in nanoseconds
            words = text_if_there(ctx.root, f"/proc/{row['pid']}/schedstat").split()
            waited_s = int(words[1]) / 1e9 if len(words) == 3 and words[1].isdigit() else None
            found[row["pid"]] = (stat.cpu_ticks / TICKS, waited_s)
    return found


def _shares(
    before: tuple[float, float | None] | None,
    after: tuple[float, float | None] | None,
    seconds: float,
) -> dict[str, float | None]:
    if before is None or after is None:
        return {"cpu_cores": None, "run_queue": None}
    waited = None if before[1] is None or after[1] is None else after[1] - before[1]
    return {
        "cpu_cores": round((after[0] - before[0]) / seconds, 3),
        "run_queue": None if waited is None else round(waited / seconds, 3),
    }


class _Cards:
    """The GPUs of the node. Without a driver there are none, and the reason is among what could
    not be read."""

    def __init__(self, ctx: Context, unread: Unread) -> None:
        self.ctx = ctx
        self.values: dict[int, list[dict[str, Any]]] = {}
        self.asking: Asking | None = None
        self.handles: dict[int, Any] = {}
        self.names: dict[int, str | None] = {}
        if "nvml" in ctx.options["without"]:
            return
        try:
            self._open(unread)
        except (OSError, Absent) as problem:
            unread.add("gpus", status_of_error(problem), one_line(problem))

    def _open(self, unread: Unread) -> None:
        # what a board does not report is a null in all looks, and no row for each of them
        self.asking, self.handles = open_gpus(self.ctx, unread, "gpus", Unread())
        for index, handle in self.handles.items():
            name = self.asking.ask(None, "nvmlDeviceGetName", handle)
            self.names[index] = None if name is None else str(name)

    def look(self) -> None:
        for index, handle in sorted(self.handles.items()):
            if self.asking is None:
                return
            try:
                row = work_of_gpu(self.asking.about("", f"GPU {index}", handle=handle))
            except Lost:
                del self.handles[index]
                continue
            self.values.setdefault(index, []).append(row)

    def rows(self) -> list[dict[str, Any]]:
        if not self.values:
            return []
        stats = read_stats(self.ctx.root)
        below = descendants(stats, [row["pid"] for row in self.ctx.options["ranks"]])
        rank_of = {**tops(below), **{top: top for top in below}}
        found = []
        for index, looks in sorted(self.values.items()):
            reasons: dict[str, int] = {}
            seen: dict[int, int] = {}
            for look in looks:
                for reason in look["throttle"] or ():
                    reasons[reason] = reasons.get(reason, 0) + 1
                for pid, _ in look["processes"] or ():
                    seen[pid] = seen.get(pid, 0) + 1
            others = [pid for pid in seen if pid not in rank_of]
            kept = [pid for pid in seen if pid in rank_of] + others[:MOST_NEIGHBOURS]
            found.append(
                {
                    "index": index,
                    "name": self.names.get(index),
                    "looks": len(looks),
                    **{name: _median([look[name] for look in looks]) for name in MEASURED},
                    "throttle": reasons,
                    "processes": [
                        [pid, rank_of.get(pid), stats[pid].command if pid in stats else None]
                        for pid in kept
                        if seen[pid] * 2 > len(looks)
                    ],
                }
            )
        return found


def _median(values: list[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return round(known[len(known) // 2], 1) if known else None
