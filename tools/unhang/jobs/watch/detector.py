"""When a job stopped making progress: samples of `unhang/trace/1` in, events out, live and
recorded. Values in, values out.

Progress is what only a job that works shows: collectives that were launched (by RAS; without RAS
ranks that wake up), a log that grows, GPUs of its own processes that move memory, ranks or their
children that read, write or compile. What other jobs of the node do is no progress. Each rule has
its recorded trace in tests/fixtures/inspect/traces. Why it stopped `inspect` says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from unhang.core.verdict.job import GONE, HALTED
from unhang.jobs.inspect.evidence import ProcessRow, rows_of
from unhang.jobs.inspect.moves import at_rest, may_have_written, moves, rose
from unhang.jobs.inspect.whose_gpus import NODE, Gpu, gpu_of, own_gpus
from unhang_node.base.parse.values import as_list, as_map
from unhang_node.job.process_table import MOST_READ

NO_PROGRESS, ENDED, STOPPED = "no progress", "ended", "stopped"
SURE_S = 5.0  # how long a rank is gone or stopped before a report: others may be about to end too
# a rank that waits for a GPU is switched up to 6 times a second, one that trains with gloo 30 times
AWAKE_PER_S = 10.0
# A rank that wakes up in so many samples goes on in some way: it polls, or it takes small steps.
WAKES = 3


@dataclass(frozen=True)
class Event:
    """t: of the sample; what: NO_PROGRESS, ENDED, STOPPED; since: of the last progress; why: one
    sentence; woken: ranks whose main thread woke up again and again since then; gone: {rank: (its
    node, pid)} of those that have ended."""

    t: float
    what: str
    since: float
    why: str
    woken: tuple[int, ...] = ()
    gone: Mapping[int, tuple[str, int]] = field(default_factory=dict)


@dataclass
class Tick:
    """All samples of one moment. counts: {rank: collectives that it launched, by RAS}; missing:
    ranks that do not answer it; logs: {(node, file): bytes}."""

    t: float
    counts: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[int, ...] = ()
    gpus: list[Gpu] = field(default_factory=list)
    ranks: dict[int, ProcessRow] = field(default_factory=dict)
    nics: list[Mapping[str, Any]] = field(default_factory=list)
    logs: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def alive(self) -> dict[int, ProcessRow]:
        """The ranks that run."""
        return {rank: row for rank, row in self.ranks.items() if row.state not in GONE}


def ticks(lines: Iterable[Mapping[str, Any]]) -> Iterator[Tick]:
    """The samples of a trace by moment; the header and lines that are no samples are passed
    over."""
    tick: Tick | None = None
    for line in lines:
        t = line.get("t")
        if not isinstance(t, (int, float)):
            continue
        if tick is None or tick.t != t:
            if tick:
                yield tick
            tick = Tick(float(t))
        if "ras" in line:
            ras = as_map(line["ras"])
            tick.counts, tick.missing = as_map(ras.get("counts")), (*as_list(ras.get("missing")),)
        elif "gpu" in line:
            tick.gpus.append(gpu_of(line))
        elif "nic" in line:
            tick.nics.append(line)
        elif isinstance(line.get("rank"), int):
            tick.ranks.update((line["rank"], row) for row in rows_of(ProcessRow, [line]))
        elif "log_bytes" in line:
            tick.logs[str(line.get(NODE) or ""), str(line.get("log"))] = line["log_bytes"]
    if tick:
        yield tick


def detect(
    lines: Iterable[Mapping[str, Any]],
    no_progress_s: float = 60.0,
    update: Callable[[Tick, float], object] = lambda _tick, _since_s: None,
) -> Iterator[Event]:
    """Events as the samples come. After NO_PROGRESS there is another one only when that long passed
    again. update: called with each moment and the seconds since the last progress."""
    progress, reported = Progress(), 0.0
    seen: dict[tuple[str, int], float] = {}
    said: set[tuple[str, int]] = set()
    for tick in ticks(lines):
        progress.takes(tick)
        update(tick, tick.t - progress.last)
        reported = max(reported, progress.last)
        yield from _ended_or_stopped(tick, seen, said)
        if tick.t - reported >= no_progress_s:
            reported = tick.t
            yield Event(
                tick.t,
                NO_PROGRESS,
                progress.last,
                _what_did_not_move(tick, tick.t - progress.last),
                progress.woken_since(tick.t - no_progress_s),
                _gone(tick),
            )


def _gone(tick: Tick) -> dict[int, tuple[str, int]]:
    return {rank: (row.asked_as, row.pid) for rank, row in tick.ranks.items() if row.state in GONE}


class Progress:
    """When a job made progress last, by its moments."""

    def __init__(self) -> None:
        self.last = 0.0
        self._before: Tick | None = None
        self._moved: Tick | None = None  # the moment of the last progress
        self._moments: deque[float] = deque(maxlen=WAKES)
        self._woke: dict[int, deque[float]] = {}  # of each rank the moments in which it had woken

    def takes(self, tick: Tick) -> None:
        """Takes the next moment."""
        before, self._before = self._before, tick
        # The processes of several jobs share RAS's port, and one of another job may have answered:
        # that it answers again is no progress.
        if before and before.counts and not tick.counts and _pids(before) == _pids(tick):
            tick.counts, tick.missing = before.counts, before.missing
        self._moments.append(tick.t)
        for rank, row in tick.ranks.items():
            if before and rose(before.ranks.get(rank), row, "switches"):
                self._woke.setdefault(rank, deque(maxlen=WAKES)).append(tick.t)
        if (
            not (before and self._moved)
            or signs_of_progress(before, tick)
            or log_grew(self._moved, tick)
            or self._all_wake(tick)
        ):
            self._moved, self.last = tick, tick.t

    def woken_since(self, t: float) -> tuple[int, ...]:
        """Ranks that woke up in WAKES moments after this one."""
        return tuple(
            sorted(rank for rank, at in self._woke.items() if len(at) == WAKES and at[0] > t)
        )

    def _all_wake(self, tick: Tick) -> bool:
        """Without RAS and GPUs: whether all of several ranks woke up in each of the last moments,
        as small steps wake them. Of a job that hangs somebody sleeps, or wakes up now and then, as
        who waits for a loader's worker does each 5 s."""
        alive = tick.alive
        return (
            len(alive) > 1
            and len(self._moments) == WAKES
            and not tick.counts
            and not gpus_of(tick)
            and all(self._woke.get(rank) == self._moments for rank in alive)
        )


def _what_did_not_move(tick: Tick, seconds: float) -> str:
    if alive := [*tick.alive.values()]:
        looked_at = {
            "collective": bool(tick.counts),
            "work on a GPU": bool(gpus_of(tick)),
            "file": all(
                row.read_bytes is not None
                and isinstance(row.children, int)
                and row.children <= MOST_READ
                for row in alive
            ),
            "log": bool(tick.logs),
        }
        moved, unseen = (
            ", no ".join(what for what, is_seen in looked_at.items() if is_seen is wanted)
            for wanted in (True, False)
        )
        return (
            f"no rank{moved and f', no {moved}'} moved for {seconds:.0f} s"
            f"{unseen and f'; no {unseen} could be looked at'}"
        )
    log = (
        "its output goes to no file (with one, its growth counts as progress)"
        if not tick.logs
        else "its log did not grow"
    )
    return (
        f"no process with a rank was found for {seconds:.0f} s, no work on a GPU was seen, and"
        f" {log}"
    )


def signs_of_progress(before: Tick, now: Tick) -> list[str]:
    """What moved between two moments, but logs; [] when nothing did."""
    signs = []
    if _rose(before.counts, now.counts, _asleep(before, now)):
        signs.append("collectives")
    own = gpus_of(now)
    if any((gpu.memory or 0) >= 1 for gpu in own):
        signs.append("GPU memory")
    seconds = max(0.1, now.t - before.t)
    pairs = {
        rank: (before.ranks[rank], row, seconds)
        for rank, row in now.ranks.items()
        if rose(before.ranks.get(rank), row, "cpu_s") is not None
    }
    rest = at_rest(pairs.values())
    signs += [f"work of rank {rank}" for rank, pair in pairs.items() if moves(*pair, rest)]
    # a weaker sign, for jobs without NCCL: who waits for a GPU that others use too is switched
    if not (now.counts or own or any(ranks_by_gpu(now).values())) and any(
        (rose(before.ranks.get(rank), row, "switches") or 0) > AWAKE_PER_S * seconds
        for rank, row in now.ranks.items()
    ):
        signs.append("ranks that wake up")
    return signs


def log_grew(since: Tick, now: Tick) -> bool:
    """Whether a log changed, and by no more than the ranks of its node may have written since
    then: a file to which other jobs print too grows while this one hangs."""
    return any(
        may_have_written(
            [(since.ranks.get(rank), row) for rank, row in now.alive.items()
             if row.asked_as == key[0]],
            size - since.logs.get(key, size),
        )
        for key, size in now.logs.items()
    )  # fmt: skip


def gpus_of(tick: Tick) -> list[Gpu]:
    """own_gpus of each node. Of a job without ranks the samples have no other GPUs than its own."""
    if not tick.ranks:
        return tick.gpus
    return [
        gpu
        for node in dict.fromkeys(gpu.node for gpu in tick.gpus)
        for gpu in own_gpus(
            [one for one in tick.gpus if one.node == node],
            {row.pid for row in tick.ranks.values() if row.asked_as == node},
        )
    ]


def ranks_by_gpu(tick: Tick) -> dict[tuple[str, str], tuple[int, ...]]:
    """{(node, GPU): ranks that have memory on it}."""
    alive = {(row.asked_as, row.pid): rank for rank, row in tick.alive.items()}
    return {
        gpu.key: tuple(
            sorted({alive[one] for pid in gpu.pids if (one := (gpu.node, pid)) in alive})
        )
        for gpu in tick.gpus
    }


def _pids(tick: Tick) -> dict[int, int]:
    return {rank: row.pid for rank, row in tick.ranks.items()}


def _asleep(before: Tick, now: Tick) -> set[str]:
    """Ranks that took no processor time and were not switched: whatever RAS counts for them, they
    launched nothing."""
    return {
        str(rank)
        for rank, row in now.ranks.items()
        if not any(rose(before.ranks.get(rank), row, name) != 0
                                      for name in ("cpu_s", "switches"))
    }  # fmt: skip


def _rose(then: Mapping[str, int], counts: Mapping[str, int], asleep: set[str]) -> bool:
    """A count that is lower is a new communicator, which is progress too."""
    return any(
        rank in then and count != then[rank] and rank not in asleep
        for rank, count in counts.items()
    ) or bool(counts and not then)


def _ended_or_stopped(
    tick: Tick, seen: dict[tuple[str, int], float], said: set[tuple[str, int]]
) -> Iterator[Event]:
    alive = tick.alive
    for rank, row in tick.ranks.items():
        state = row.state
        what = ENDED if state in GONE and alive else STOPPED if state in HALTED else None
        for other in (ENDED, STOPPED):
            if other != what:
                seen.pop((other, rank), None)
                said.discard((other, rank))
        if what is None or (what, rank) in said:
            continue
        since = seen.setdefault((what, rank), tick.t)
        if tick.t - since >= SURE_S:
            said.add((what, rank))
            why = (
                f"rank {rank} has ended and others go on"
                if what == ENDED
                else f"rank {rank} is stopped"
            )
            yield Event(tick.t, what, since, why, gone=_gone(tick))
