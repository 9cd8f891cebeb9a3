"""A rank's state: its rank number, its steps, its planned faults, and its exchange with the others
outside the network under test."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from .board import Board
from .events import emit
from .limits import SELF_END_S, SLOW_BYTES_S, STEP_S

MOST_STEPS, LEAST_STEP_S = 4, 0.1  # of the steps that are reported


class Failed(Exception):
    """A phase failed; the text has what was expected and what was found. more: fields of the
    event."""

    def __init__(self, message: str, **more: Any) -> None:
        super().__init__(message)
        self.more = more


class Run:
    """State of a rank: its rank number, its plan, its board; torch and the process group once they
    exist."""

    def __init__(
        self, plan: dict[str, Any], place: tuple[int, int, int, int], descriptor: int, folder: str
    ) -> None:
        self.plan, self.descriptor, self.folder = plan, descriptor, folder
        self.rank, self.world, self.local_rank, self.local_world = place
        self.board = Board(os.path.join(folder, "board-%d" % self.rank), create=True)
        self.stacks = open(os.path.join(folder, "stacks-%d" % self.rank), "w+", encoding="utf-8")  # noqa: SIM115 -- open as long as the process lives
        self.host = plan.get("host") or socket.gethostname()
        self.phases: tuple[str, ...] = ()
        self.phase, self.phase_until = "", 0.0
        self.torch: Any = None
        self.dist: Any = None
        self.store: Any = None
        self.device: Any = None
        self.backend: str | None = None
        self.facts: dict[str, Any] = {}
        self.losses: Sequence[float] = ()
        self.seed, self.last_status = 0, "ok"
        self.steps: dict[str, float] = {}
        self.step_name, self.step_began = "", time.monotonic()

    def event(self, kind: str, **fields: Any) -> None:
        """An event of this rank, in this phase."""
        emit(self.descriptor, kind, rank=self.rank, host=self.host, phase=self.phase, **fields)

    def step(self, name: str, limit_s: float | None = None) -> None:
        """Announces a step: from now on the agent measures its time. A timer in this process
        measures it too, and ends the process if the agent does not."""
        limit_s = limit_s or self.plan.get("step_timeout_s") or STEP_S
        limit_s = min(limit_s, max(0.5, self.phase_until - time.monotonic()))
        self.end_step(name)
        self.board.begin(self.phase, name, limit_s, self.phase_until)
        faulthandler.dump_traceback_later(limit_s + SELF_END_S, exit=True, file=self.stacks)

    def end_step(self, following: str = "") -> None:
        """Notes how long the step before took."""
        now = time.monotonic()
        self.steps[self.step_name] = self.steps.get(self.step_name, 0.0) + now - self.step_began
        self.step_name, self.step_began = following, now

    def longest_steps(self) -> dict[str, float]:
        """{step: seconds} of the phase's longest steps, which shows where its time was spent; then
        the counting starts again for the next phase."""
        self.end_step()
        longest = sorted(self.steps.items(), key=lambda step: -step[1])[:MOST_STEPS]
        self.steps = {}
        return {name: round(seconds, 3) for name, seconds in longest if seconds >= LEAST_STEP_S}

    def collective(
        self,
        name: str,
        call: Callable[[], Any],
        size_bytes: int = 0,
        expected_s: float | None = None,
    ) -> Any:
        """One collective, counted before it is entered and after it is over. Returns its result;
        the device has finished.

        Its limit is that of any collective plus the time that its size takes on a slow network, or
        plus three times the expected time, where one was measured.
        """
        base_s = self.plan.get("step_timeout_s") or STEP_S
        slow = SLOW_BYTES_S if self.backend == "nccl" else SLOW_BYTES_S / 5
        self.step(name, base_s + (size_bytes / slow if expected_s is None else 3 * expected_s))
        drill(self)
        self.board.enter()
        result = call()
        self.await_device()
        self.board.leave()
        return result

    def await_device(self) -> None:
        """Waits for the device."""
        if self.device is not None and self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def free_bytes(self) -> int:
        """Memory that this rank may use: of its GPU, or its share of the machine's."""
        if self.device is not None and self.device.type == "cuda":
            return int(self.torch.cuda.mem_get_info()[0])
        with open("/proc/meminfo", encoding="ascii") as lines:
            available = next(
                (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")),
                1 << 30,
            )
        return available // max(1, self.local_world)

    def scaled(self, elements: int, element_bytes: int, copies: int) -> int:
        """The number of elements that was requested, limited by memory (half of what is free) and
        by the plan's largest message."""
        room = min(self.free_bytes() // 2, copies * (self.plan.get("max_bytes") or 1 << 62)) // (
            copies * element_bytes
        )
        agreed = self.torch.tensor(
            [min(elements, room)], dtype=self.torch.int64, device=self.device
        )
        self.collective(
            "agree on the size", lambda: self.dist.all_reduce(agreed, op=self.dist.ReduceOp.MIN)
        )
        return max(self.world, int(agreed) // self.world * self.world)


def drill(run: Run) -> None:
    """Runs a planned fault, so that the smoke test itself can be tested: `--drill
    RANK:FAULT[:PHASE]`. Once per run, except for lasting faults."""
    for fault in run.plan.get("drills") or ():
        if fault["rank"] != run.rank or fault.get("phase", "all_reduce") != run.phase:
            continue
        if fault["fault"] == "absent":
            while True:
                time.sleep(3600)
        elif fault["fault"] == "exit":
            os._exit(7)
        elif fault["fault"] == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif fault["fault"] == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif fault["fault"] == "read":
            with contextlib.suppress(OSError), open(
                os.environ["UNHANG_DRILL_FILE"], "rb"
            ) as source:
                source.read(1)


def drilled(run: Run, fault: str) -> bool:
    """Whether this rank must show this lasting fault."""
    return any(
        one["rank"] == run.rank and one["fault"] == fault for one in run.plan.get("drills") or ()
    )


def short_list(numbers: Sequence[int]) -> str:
    """3, 5, 8 and 40 more."""
    shown = ", ".join(map(str, numbers[:16]))
    return shown if len(numbers) <= 16 else "%s and %d more" % (shown, len(numbers) - 16)


def wait_for(run: Run, keys: list[str], limit_s: float) -> None:
    """Waits until the store has all keys."""
    until = time.monotonic() + limit_s
    for key in keys:
        while not run.store.check([key]):
            if time.monotonic() > until:
                raise Failed("%s was not in the store within %.0f s" % (key, limit_s))
            time.sleep(0.02)


def meet(run: Run, name: str) -> None:
    """All ranks meet at the store, without the network under test."""
    run.store.add("met/" + name, 1)
    run.step("wait for the others after %s" % name, run.phase_until - time.monotonic())
    while run.store.add("met/" + name, 0) < run.world:
        time.sleep(0.02)
