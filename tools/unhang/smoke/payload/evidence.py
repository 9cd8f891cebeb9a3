"""The evidence that the agent collects when its ranks fail or hang, all within 20 s of the
stall."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

from .board import Board
from .counters import changed, net_counters, peers_of
from .kernel_log import new_kernel_lines
from .limits import EVIDENCE_S, POLL_S
from .nvml import NVML_AGAIN_S, NvmlQuestion
from .processes import process_state, signal_name
from .recording import read_encoded, read_tail, recording_path
from .stacks import find_spy, native_stacks
from .transports import transports_of
from .watched import reap

NOWHERE = {
    "phase": "environment",
    "step": "start the interpreter",
    "seq": 0,
    "done": 0,
    "began": 0,
    "until": 0,
    "phase_until": 0,
}


def collect_evidence(agent: Any, kind: str) -> None:
    """For every rank: its position, the call that it waits in, its stacks, its flight recording;
    for the node: log and counters."""
    alive = [child for child in agent.children if child.code is None]
    states = {child.rank: process_state(child.process.pid) for child in alive}
    stands = {child.rank: child.board.read() if child.board else None for child in agent.children}
    for child in alive:
        with contextlib.suppress(OSError):
            if child.board:
                child.board.flag(Board.ASKED, 1)
                os.kill(child.process.pid, signal.SIGUSR1)
    before, second = agent.first_links(), None
    with contextlib.suppress(OSError):
        second = NvmlQuestion()
    asked = time.monotonic()
    able = [child for child in alive if child.board and states[child.rank][0] not in ("T", "t")]
    while time.monotonic() - asked < EVIDENCE_S and not all(
        child.board.flag(Board.ANSWERED) or child.code is not None for child in able
    ):
        agent.listen(POLL_S)
        reap(agent.children)
    spy = find_spy(agent.plan.get("python"))
    native = native_stacks(spy, [child.process.pid for child in alive]) if spy else {}
    for child in alive:
        # A process is in state D for a moment while it reads a page; only one that stays in it
        # hangs in the kernel.
        state = states[child.rank]
        state = process_state(child.process.pid) if state[0] == "D" else state
        report_stall(agent, child, kind, state, stands[child.rank], native.get(child.process.pid))
    after = second.answer(NVML_AGAIN_S) if second else before
    log, net = new_kernel_lines(agent.kernel_log), net_counters()
    moved = changed(agent.counters, net)
    links = changed(before["counters"], after["counters"]) if before["counters"] else {}
    peers = {**peers_of(moved, net), **peers_of(links, after["counters"])}
    counted_s = round(time.monotonic() - agent.counted_since, 1)
    agent.event(
        "evidence",
        kernel_log=log,
        counters=moved,
        nvlink=links,
        nvml=after["problem"],
        peers=peers,
        counted_s=counted_s,
    )


def report_stall(
    agent: Any,
    child: Any,
    kind: str,
    state: tuple[str, str],
    stand: dict[str, Any] | None,
    native: str | None,
) -> None:
    """The evidence of one living rank as an event."""
    now = time.monotonic()
    late = 0 < min(stand["until"], stand["phase_until"]) < now if stand else kind == "stalled"
    began = stand["began"] if stand else child.started
    stand = stand or NOWHERE
    reason = "stopped" if state[0] in ("T", "t") else "deadline" if late else "witness"
    fields = {
        "rank": child.rank, "pid": child.process.pid, "reason": reason, "trouble": kind,
        "state": state[0], "wchan": state[1], "phase": stand["phase"],
        "step": stand["step"], "seq": stand["seq"], "done": stand["done"],
        "waited_s": round(now - began, 1) if began else None,
        "queued": agent.load.queued(child.process.pid, began),
        "stack": read_tail(os.path.join(agent.folder, "stacks-%d" % child.rank)),
        "output": child.output[-8:],
        "flight_recorder": read_encoded(recording_path(agent.folder, child.rank)),
        "native_stack": native,
    }  # fmt: skip
    agent.event("stall", **fields)


def report_exits(agent: Any) -> None:
    """Reports how each rank ended by itself, before any process is killed."""
    for child in agent.children:
        if child.code is not None and child.code != 0:
            stand = (
                child.board.read()
                if child.board
                else {"phase": "environment", "step": "", "seq": 0, "done": 0}
            )
            fields = {key: stand[key] for key in ("phase", "step", "seq", "done")}
            stack = read_tail(os.path.join(agent.folder, "stacks-%d" % child.rank), 4000)
            agent.event(
                "exit",
                rank=child.rank,
                code=child.code,
                signal=signal_name(child.code),
                output=child.output[-12:],
                stack=stack,
                **fields,
            )


def report_transports(agent: Any) -> None:
    """Which transport each pair of ranks uses, from NCCL's log, and from NVML for GPUs that NVLink
    connects."""
    links = agent.first_links()
    if links["pairs"] is not None:
        agent.event("nvlink", pairs=links["pairs"], links=links["links"])
    for child in agent.children:
        log = read_tail(os.path.join(agent.folder, "nccl-%d.log" % child.rank), 4 << 20)
        if log:
            warnings = [line[:300] for line in log.splitlines() if " NCCL WARN " in line][-8:]
            agent.event("transports", rank=child.rank, warnings=warnings, **transports_of(log))
