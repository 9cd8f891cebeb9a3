"""The evidence of all nodes as one row for each rank. Values in, values out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from unhang.core.verdict.activities import (
    activity_of,
    function_names,
    innermost_of,
    user_frames,
)
from unhang.core.verdict.awaits import BROADCAST, QUEUE, one_serves, takes_from, telling_thread
from unhang.core.verdict.job import (
    ASKS,
    HALTED,
    IDLE,
    MOVES,
    Process,
    RankLook,
    Wait,
    Worker,
)
from unhang.jobs.inspect.evidence import (
    NOBODY,
    Child,
    Dump,
    NodeEvidence,
    ProcessRow,
    SocketsRow,
    Thread,
)
from unhang.jobs.inspect.moves import arrives, at_rest, may_have_written, moves, rose
from unhang.jobs.inspect.whose_gpus import Gpu
from unhang_node.base.parse.values import number_of

BUSY_PERCENT = 95
WAKES_PER_S = 2.0  # vLLM looks again every 5 s whether its queue is closed; a step wakes it at once


def rank_looks(nodes: Sequence[NodeEvidence]) -> list[RankLook]:
    """One for each rank of each node, in the order of ranks."""
    rest = at_rest(pair for node in nodes for pair in node.pairs())
    dumps = (node.dumps.get(row.pid) for node in nodes for row in node.ranks)
    thread = telling_thread([dump.by_name for dump in dumps if dump])
    found = [look for node in nodes for look in _of_node(node, rest, thread)]
    return sorted(found, key=lambda look: (look.rank is None, look.rank or 0, look.host))


def _of_node(node: NodeEvidence, rest: Mapping[str, float], thread: str) -> Iterator[RankLook]:
    gpus = {pid: f"GPU {gpu.name}" for gpu in reversed(node.gpus[0]) for pid in gpu.pids}
    busy_gpus, spinning = computing_gpus(node), spinning_gpus(node)
    wakes = WAKES_PER_S * node.gap_s
    for row in node.ranks:
        pid, size = row.pid, row.settings.get("LOCAL_WORLD_SIZE", "")
        first = node.first.get(pid, NOBODY)
        second = node.second.get(pid, first)
        dump, later = (one.get(pid, Dump(pid)).led_by(thread) for one in (node.dumps, node.later))
        # py-spy may read the stack of a process that runs while it changes, and get a piece of it
        if dump.frames and function_names(later.frames[-1:]) != function_names(dump.frames[-1:]):
            later = Dump(pid)
        latest = later.frames or dump.frames
        own, own_later = user_frames(dump.frames), user_frames(later.frames)
        is_known = bool(dump.frames and later.frames)
        children = tuple(_children(first, second))
        tree = (pid, *(child.pid for child in children))
        gpu = next((gpus[one] for one in tree if one in gpus), None)
        engine = row.engine or 0
        awaits = engine > 0 and all(takes_from(one, BROADCAST) for one in (dump.frames, latest))
        sockets = node.sockets.get(pid, SocketsRow(pid))
        yield RankLook(
            rank=row.rank, host=node.host, pid=pid, own_pid=row.own_pid or pid, gpu=gpu,
            job=row.job, world_size=row.world_size,
            states=("gone",) if row.has_ended else tuple(
                one.state for one in (first, second) if one is not NOBODY
            ),
            cpu=_rate(first, second, node.gap_s),
            has_io=any(
                rose(first.io, second.io, name)
                for name in ("write_bytes", "read_bytes")
            ),
            wchan=second.wchan, tracer=second.tracer,
            doing=activity_of(latest),
            moved=own != own_later if is_known else None,
            shifted=function_names(own) != function_names(own_later) if is_known else None,
            waited=_waited(first, second, wakes if awaits else 0), children=children,
            worker=next(_workers(node, pid), None),
            blocked=tuple(map(_wchan, second.threads_blocked)),
            sockets=sockets.sockets, log_grew=_log_grew(node, pid),
            computes=gpu in busy_gpus, spins=gpu in spinning,
            local_world_size=int(size) if size.isdigit() and len(size) < 5 else 0,
            signs=moves(first, second, node.gap_s, rest) if first is not second else {},
            arrives=arrives(second, rest), innermost=innermost_of(latest),
            wait=sockets.wait or Wait(), locks=node.locks,
            serves=one_serves(one.frames for one in dump.threads[1:]),
            is_launched=bool(row.launcher),
            wakes=row.wakes or bool(rose(first, second, "switches")),
            in_own_code=bool(own) and [*later.frames, *dump.frames][0] in (*own_later, *own),
            path=tuple(reversed(own_later or own)),
            awaits_a_queue=takes_from(latest),
            engine=_engine(
                (node.dumps.get(engine), node.later.get(engine)),
                _waited(node.first.get(engine, NOBODY), node.second.get(engine, NOBODY), wakes),
            ),
            awaits_engine=awaits,
            frozen=(first.frozen and second.frozen) or "",
        )  # fmt: skip


def _rate(first: ProcessRow, second: ProcessRow, seconds: float) -> float | None:
    more = None if first is second else rose(first, second, "cpu_s")
    return None if more is None else max(0.0, more / seconds)


def _waited(first: ProcessRow, second: ProcessRow, wakes: float = 0) -> bool:
    """Whether the main thread was never switched, or at most so often, between two looks that saw
    it asleep."""
    asleep = first is not second and first.state == second.state == "S"
    switched = rose(first, second, "switches")
    return asleep and switched is not None and switched <= wakes


def _workers(node: NodeEvidence, pid: int) -> Iterator[Worker]:
    for other, dump in node.dumps.items():
        activity = activity_of(dump.frames) if dump.of == pid and other != pid else None
        if activity and activity.user:
            item = dump.threads[0].item if dump.threads else []
            yield Worker(other, activity.user, ", ".join(item))


def _engine(dumps: Sequence[Dump | None], is_asleep: bool) -> str:
    """What an engine does, by its main thread in both looks; "" without a stack."""
    stacks = [dump.frames for dump in dumps if dump and dump.frames]
    if stacks and not is_asleep:
        return MOVES
    for word, queue in ((IDLE, QUEUE), (ASKS, BROADCAST)):
        if stacks and all(takes_from(frames, queue) for frames in stacks):
            return word
    doing = activity_of(stacks[-1]) if stacks else None
    return doing.where if doing else ""


def _children(first: ProcessRow, second: ProcessRow) -> Iterator[Process]:
    before = {child.pid: child for child in first.below()}
    for row in second.below():
        then = before.get(row.pid, Child(row.pid))
        yield Process(
            row.pid, row.command, row.state, _wchan(row), row.cpu_s - then.cpu_s,
            row.pid not in before, row.state in HALTED and then.state in HALTED,
        )  # fmt: skip


def _wchan(row: Child | Thread) -> str:
    return row.wchan or "the kernel"


def _log_grew(node: NodeEvidence, pid: int) -> bool | None:
    sizes = node.log_bytes.get(pid)
    if not sizes or None in sizes:
        return None
    return may_have_written(
        [pair[:2] for pair in node.pairs()], number_of(sizes[1]) - number_of(sizes[0])
    )


def computing_gpus(node: NodeEvidence) -> set[str]:
    """The job's GPUs that moved memory in both looks. A GPU that waits in NCCL's kernel shows 100 %
    utilisation and no memory activity (measured on H100)."""
    return _in_both(node, lambda gpu: (gpu.memory or 0) >= 1)


def spinning_gpus(node: NodeEvidence) -> set[str]:
    """The job's GPUs that are busy in both looks and move no memory: what NCCL's waiting kernel
    looks like, and a kernel that never ends."""
    return _in_both(node, lambda gpu: (gpu.busy or 0) >= BUSY_PERCENT and gpu.memory == 0)


def _in_both(node: NodeEvidence, holds: Callable[[Gpu], bool]) -> set[str]:
    first, second = ({f"GPU {gpu.name}" for gpu in gpus if holds(gpu)} for gpus in node.own_gpus)
    return first & second
