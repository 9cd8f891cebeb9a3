"""The evidence of all nodes as one row for each rank. Documents come from nodes: what is not as
expected is left out here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from unhang.core.verdict.activities import (
    SERVING,
    activity_of,
    function_names,
    innermost_of,
    user_frames,
)
from unhang.core.verdict.job import (
    ASKS,
    HALTED,
    IDLE,
    MOVES,
    Process,
    RankLook,
    Socket,
    Wait,
    Worker,
)
from unhang.jobs.inspect.moves import Look, arrives, at_rest, may_have_written, moves, rose
from unhang.jobs.inspect.whose_gpus import Gpu, gpu_of, own_gpus
from unhang_node.base.parse.values import as_list, as_map, as_maps, number_of, whole_or_none

BUSY_PERCENT = 95
QUEUE, BROADCAST = "get (queue.py)", "dequeue (shm_broadcast.py)"
WAKES_PER_S = 2.0  # vLLM looks again every 5 s whether its queue is closed; a step wakes it at once
YOUNGEST = 5  # frames in which a wait for a queue shows


def rank_looks(documents: Sequence[Mapping[str, Any]]) -> list[RankLook]:
    """One for each rank of each document, in the order of ranks."""
    rest = at_rest(pair for document in documents for pair in _pairs(document))
    found = [look for document in documents for look in _of_document(document, rest)]
    return sorted(found, key=lambda look: (look.rank is None, look.rank or 0, look.host))


def section(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A section of an evidence document, {} without it."""
    return as_map(as_map(document.get("sections")).get(name))


def host_of(document: Mapping[str, Any]) -> str:
    """The name that the node was asked by, else its own."""
    own = as_map(document.get("collector")).get("host")
    return str(document.get("asked_as") or own or "?")


def _pairs(document: Mapping[str, Any]) -> Iterator[tuple[Any, Any, float]]:
    """Of each rank its rows in the two looks and the seconds between them."""
    proc = section(document, "proc")
    firsts, seconds = (_by_pid(proc.get(f"ranks_{number}")) for number in (1, 2))
    for pid in _by_pid(document.get("ranks")):
        if pid in firsts and pid in seconds:
            yield firsts[pid], seconds[pid], gap_s_of(proc)


def gap_s_of(looks: Mapping[str, Any]) -> float:
    """Seconds between the two looks of a section."""
    gap_s = number_of(looks.get("at_2_s")) - number_of(looks.get("at_1_s"))
    return max(0.1, gap_s) if looks.get("at_2_s") else 1.0


def _of_document(document: Mapping[str, Any], rest: Mapping[str, float]) -> Iterator[RankLook]:
    proc, stacks = section(document, "proc"), section(document, "stacks")
    firsts, seconds = (_by_pid(proc.get(f"ranks_{number}")) for number in (1, 2))
    seconds_between = gap_s_of(proc)
    dumps, later = _by_pid(stacks.get("processes")), _by_pid(stacks.get("processes_2"))
    sockets = _by_pid(section(document, "sockets").get("ranks"))
    gpus, busy_gpus, spinning = _gpus(document), computing_gpus(document), spinning_gpus(document)
    locks = tuple(
        str(lock.get("path"))
        for cache in as_maps(section(document, "locks").get("caches"))
        for lock in as_maps(cache.get("locks"))
    )
    for place, row in enumerate(as_maps(document.get("ranks"))):
        pid = whole_or_none(row.get("pid"))
        if pid is None:
            continue
        first, second = firsts.get(pid, {}), seconds.get(pid, firsts.get(pid, {}))
        frames, frames_later = _main_frames(dumps.get(pid)), _main_frames(later.get(pid))
        latest = frames_later or frames
        own, own_later = user_frames(frames), user_frames(frames_later)
        is_known = bool(frames and frames_later)
        children = tuple(_children(first, second))
        tree = (pid, *(child.pid for child in children))
        size = str(as_map(row.get("settings")).get("LOCAL_WORLD_SIZE"))
        gpu = next((gpus[one] for one in tree if one in gpus), None)
        engine, wakes = whole_or_none(row.get("engine")) or 0, WAKES_PER_S * seconds_between
        stacks_of_both = (frames, latest)
        awaits = engine > 0 and all(_takes_from(one, BROADCAST) for one in stacks_of_both)
        is_asleep = _waited(firsts.get(engine, {}), seconds.get(engine, {}), wakes)
        workers = [
            Worker(other, activity.user, _item(dump))
            for other, dump in dumps.items()
            if dump.get("of") == pid
            and other != pid
            and (activity := activity_of(_main_frames(dump)))
            and activity.user
        ]
        yield RankLook(
            rank=whole_or_none(row.get("rank")), host=host_of(document), pid=pid,
            own_pid=whole_or_none(row.get("own_pid")) or pid, gpu=gpu,
            job=str(row.get("job")), world_size=whole_or_none(row.get("world_size")),
            states=("gone",) if row.get("has_ended") is True else tuple(
                str(one["state"]) for one in (firsts.get(pid), seconds.get(pid)) if one
            ),
            cpu=_rate(first, second, "cpu_s", seconds_between),
            has_io=any(
                rose(as_map(first.get("io")), as_map(second.get("io")), name)
                for name in ("write_bytes", "read_bytes")
            ),
            wchan=second.get("wchan"), tracer=whole_or_none(second.get("tracer")),
            doing=activity_of(latest),
            moved=own != own_later if is_known else None,
            shifted=function_names(own) != function_names(own_later) if is_known else None,
            waited=_waited(first, second, wakes if awaits else 0), children=children,
            worker=next(iter(workers), None),
            blocked=tuple(map(_wchan, as_maps(second.get("threads_blocked")))),
            sockets=_sockets(sockets.get(pid, {})),
            log_grew=_log_grew(document, place), computes=gpu in busy_gpus, spins=gpu in spinning,
            local_world_size=int(size) if size.isdigit() and len(size) < 5 else 0,
            signs=(
                moves(first, second, seconds_between, rest)
                if pid in firsts and pid in seconds else {}
            ),
            arrives=arrives(second, rest), innermost=innermost_of(latest),
            wait=_wait(as_map(sockets.get(pid, {}).get("wait"))), locks=locks,
            serves=_serves(dumps.get(pid)), is_launched=bool(row.get("launcher")),
            wakes=row.get("wakes") is True or bool(rose(first, second, "switches")),
            in_own_code=bool(own) and [*frames_later, *frames][0] in (*own_later, *own),
            path=tuple(reversed(own_later or own)),
            awaits_a_queue=_takes_from(latest, QUEUE),
            engine=_engine((dumps.get(engine), later.get(engine)), is_asleep),
            awaits_engine=awaits, frozen=str((first.get("frozen") and second.get("frozen")) or ""),
        )  # fmt: skip


def _by_pid(value: Any) -> dict[int, Mapping[str, Any]]:
    return {row["pid"]: row for row in as_maps(value) if isinstance(row.get("pid"), int)}


def _rate(first: Look, second: Look, name: str, seconds: float) -> float | None:
    more = None if first is second else rose(first, second, name)
    return None if more is None else max(0.0, more / seconds)


def _waited(first: Look, second: Look, wakes: float = 0) -> bool:
    """Whether the main thread was never switched, or at most so often, between two looks that saw
    it asleep."""
    asleep = first is not second and first.get("state") == second.get("state") == "S"
    switched = rose(first, second, "switches")
    return asleep and switched is not None and switched <= wakes


def _main_frames(dump: Mapping[str, Any] | None) -> list[str]:
    return next(map(_frames_of, as_maps((dump or {}).get("threads"))), [])


def _frames_of(thread: Mapping[str, Any]) -> list[str]:
    return [str(frame) for frame in as_list(thread.get("frames"))]


def _item(dump: Mapping[str, Any]) -> str:
    thread = next(iter(as_maps(dump.get("threads"))), {})
    return ", ".join(map(str, as_list(thread.get("item"))))


def _serves(dump: Mapping[str, Any] | None) -> bool:
    others = as_maps((dump or {}).get("threads"))[1:]
    doing = (activity_of(_frames_of(one)) for one in others)
    return any(one is not None and one.name == SERVING for one in doing)


def _takes_from(frames: Sequence[str], queue: str) -> bool:
    return queue in map(innermost_of, ([frame] for frame in frames[:YOUNGEST]))


def _engine(dumps: Sequence[Mapping[str, Any] | None], is_asleep: bool) -> str:
    """What an engine does, by its main thread in both looks; "" without a stack."""
    stacks = [frames for frames in map(_main_frames, dumps) if frames]
    if stacks and not is_asleep:
        return MOVES
    for word, queue in ((IDLE, QUEUE), (ASKS, BROADCAST)):
        if stacks and all(_takes_from(frames, queue) for frames in stacks):
            return word
    doing = activity_of(stacks[-1]) if stacks else None
    return doing.where if doing else ""


def _children(first: Look, second: Look) -> Iterator[Process]:
    before = _by_pid(first.get("children"))
    for pid, row in _by_pid(second.get("children")).items():
        then = before.get(pid, {})
        yield replace(
            _process(row),
            place=_wchan(row),
            took_s=number_of(row.get("cpu_s")) - number_of(then.get("cpu_s")),
            is_new=not then,
            is_stopped=row.get("state") in HALTED and then.get("state") in HALTED,
        )


def _process(row: Look) -> Process:
    return Process(
        whole_or_none(row.get("pid")) or 0, str(row.get("command")), str(row.get("state"))
    )


def _wchan(row: Look) -> str:
    return str(row.get("wchan") or "the kernel")


def _wait(row: Look) -> Wait:
    child, holder = (
        _process(one) if isinstance(one, Mapping) else None
        for one in (row.get("child"), row.get("holder"))
    )
    call, target = (str(row.get(name) or "") for name in ("call", "target"))
    return Wait(call, target, child, holder, _sockets(row))


def _sockets(row: Look) -> tuple[Socket, ...]:
    return tuple(
        Socket(*(str(one.get(name) or "") for name in ("state", "local", "remote")))
        for one in as_maps(row.get("sockets"))
    )


def _log_grew(document: Mapping[str, Any], place: int) -> bool | None:
    proc = section(document, "proc")
    sizes = [as_list(proc.get(f"log_bytes_{number}"))[place : place + 1] for number in (1, 2)]
    if not all(sizes) or [None] in sizes:
        return None
    pairs = [pair[:2] for pair in _pairs(document)]
    return may_have_written(pairs, number_of(sizes[1][0]) - number_of(sizes[0][0]))


def gpus_and_pids(document: Mapping[str, Any], number: int) -> tuple[list[Gpu], set[int]]:
    """(all GPUs of a look, the job's processes on the node), as own_gpus takes them."""
    proc, pids = section(document, "proc"), set(_by_pid(document.get("ranks")))
    for row in (*as_maps(proc.get("ranks_1")), *as_maps(proc.get("ranks_2"))):
        pids |= set(_by_pid([row])) | set(_by_pid(row.get("children")))
    return [*map(gpu_of, as_maps(section(document, "nvml").get(f"gpus_{number}")))], pids


def computing_gpus(document: Mapping[str, Any]) -> set[str]:
    """The job's GPUs that moved memory in both looks. A GPU that waits in NCCL's kernel shows 100 %
    utilisation and no memory activity (measured on H100)."""
    return _in_both(document, lambda gpu: (gpu.memory or 0) >= 1)


def spinning_gpus(document: Mapping[str, Any]) -> set[str]:
    """The job's GPUs that are busy in both looks and move no memory: what NCCL's waiting kernel
    looks like, and a kernel that never ends."""
    return _in_both(document, lambda gpu: (gpu.busy or 0) >= BUSY_PERCENT and gpu.memory == 0)


def _in_both(document: Mapping[str, Any], holds: Callable[[Gpu], bool]) -> set[str]:
    first, second = (
        {f"GPU {gpu.name}" for gpu in own_gpus(*gpus_and_pids(document, number)) if holds(gpu)}
        for number in (1, 2)
    )
    return first & second


def _gpus(document: Mapping[str, Any]) -> dict[int, str]:
    """{pid: GPU 3} by the driver's own list."""
    gpus, _ = gpus_and_pids(document, 1)
    return {pid: f"GPU {gpu.name}" for gpu in reversed(gpus) for pid in gpu.pids}
