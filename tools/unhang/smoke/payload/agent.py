"""The node's agent: starts its ranks, monitors them from outside, and ends them in every case."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from .board import Board
from .counters import net_counters
from .events import emit
from .evidence import collect_evidence, report_exits, report_transports
from .kernel_log import open_kernel_log
from .leftovers import PREFIX, hold_folder
from .limits import GRACE_S, LINE_BYTES, MOST_READS, POLL_S, START_S, STOPPED_S
from .load import LoadWatch
from .mapped import boot_id
from .nvml import NVML_S, NvmlQuestion, nothing_read
from .own_file import OWN_FOLDER, OWN_WORDS
from .processes import die_with_parent, end_session, process_state
from .watched import Watched, add_output, end_politely, listen_to, reap, start_process


class Child(Watched):
    """One rank as its agent sees it."""

    def __init__(
        self, rank: int, process: subprocess.Popen[bytes], board: Board | None, events: int
    ) -> None:
        super().__init__(process, events)
        self.rank, self.board, self.started = rank, board, time.monotonic()
        self.stopped_since: float | None = None


class Agent:
    """Starts the ranks of this node, passes their events on, monitors them from outside, collects
    evidence, and ends them in every case."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.folder = tempfile.mkdtemp(prefix="unhang-smoke-")
        self.host = plan.get("host") or socket.gethostname()
        self.children: list[Child] = []
        self.selector = selectors.DefaultSelector()
        limit_s = plan.get("total_timeout_s") or 600
        self.until = time.monotonic() + limit_s
        for folder in [self.folder] + (
            [OWN_FOLDER] if OWN_FOLDER and os.path.basename(OWN_FOLDER).startswith(PREFIX) else []
        ):
            hold_folder(folder, limit_s)
        self.stop: str | None = None
        self.asked = False
        self.nvml: NvmlQuestion | None = None
        self.links: dict[str, Any] | None = None
        self.load = LoadWatch()

    def event(self, kind: str, **fields: Any) -> None:
        """An event of this node."""
        emit(1, kind, host=self.host, **fields)

    def start(self) -> None:
        """All ranks, each in a session of its own."""
        self.kernel_log, self.counters, self.counted_since = (
            open_kernel_log(),
            net_counters(),
            time.monotonic(),
        )
        with contextlib.suppress(OSError):
            self.nvml = NvmlQuestion()
        for local_rank in range(self.plan["nproc"]):
            self.children.append(self.start_rank(local_rank))

    def listen_to_launcher(self) -> None:
        """The plan says whether standard input is the launcher's."""
        if self.plan.get("watch_stdin"):
            os.set_blocking(0, False)
            self.selector.register(0, selectors.EVENT_READ, "stdin")

    def start_rank(self, local_rank: int) -> Child:
        """One rank with its pipe for events and its own settings."""
        rank = self.plan["rank_offset"] + local_rank
        environment = rank_environment(self.plan, rank, local_rank, self.folder, os.environ)
        argv = [
            self.plan.get("python") or sys.executable,
            "-u",
            *OWN_WORDS,
            "rank",
            "--folder",
            self.folder,
        ]
        process, events = start_process(argv, environment, begin_rank)
        child = Child(rank, process, None, events)
        listen_to(child, self.selector)
        self.event("rank_begin", rank=rank, pid=process.pid, local_rank=local_rank)
        return child

    def listen(self, wait_s: float) -> bool:
        """Passes on the ranks' output, for at most wait_s. Returns whether there was any."""
        ready = self.selector.select(wait_s)
        for key, _ in ready:
            if key.data == "stdin":
                self.hear_stdin()
                continue
            try:
                piece = os.read(key.fd, 65536)
            except BlockingIOError:
                continue
            if not piece:
                self.selector.unregister(key.fileobj)
            elif key.fd == key.data.events:
                self.pass_on(key.data, piece)
            else:
                add_output(key.data, piece)
        return bool(ready)

    def drain(self) -> None:
        """Reads what ranks printed before they ended, so that a rank that reported why it ends does
        not count as ended without a reason."""
        for _ in range(MOST_READS):
            if not self.listen(0):
                return

    def pass_on(self, child: Child, piece: bytes) -> None:
        """Passes on complete lines of events at once."""
        *lines, child.buffer = (child.buffer + piece).split(b"\n")
        for line in lines:
            with contextlib.suppress(OSError):
                os.write(1, line[:LINE_BYTES] + b"\n")
        child.buffer = child.buffer[-LINE_BYTES:]

    def hear_stdin(self) -> None:
        """Reads from the launcher. The end of its stream means that the launcher is gone."""
        try:
            output = os.read(0, 4096)
        except BlockingIOError:
            return
        if not output:
            self.selector.unregister(0)
            self.stop = self.stop or "the launcher is gone"
        elif b"evidence" in output:
            # another node is in trouble: the evidence of this node is needed too, and need not wait
            # for a deadline
            self.asked = True

    def trouble(self) -> tuple[str, list[Child]] | None:
        """Why to stop monitoring before the ranks end: (kind, children in trouble), or None."""
        now = time.monotonic()
        if self.stop:
            return "stopped", []
        if now > self.until:
            return "deadline", [child for child in self.children if child.code is None]
        dead = [child for child in self.children if child.code not in (None, 0)]
        if dead:
            return "died", dead
        stuck = [
            child for child in self.children if child.code is None and self.is_stuck(child, now)
        ]
        if stuck:
            return "stalled", stuck
        return ("asked", []) if self.asked else None

    def is_stuck(self, child: Child, now: float) -> bool:
        """Whether the child is past its deadline, or stopped by a signal."""
        if child.board is None:
            path = os.path.join(self.folder, "board-%d" % child.rank)
            if os.path.exists(path) and os.path.getsize(path) == Board.SIZE:
                child.board = Board(path)
        stopped = process_state(child.process.pid)[0] in ("T", "t")
        child.stopped_since = (child.stopped_since or now) if stopped else None
        if child.stopped_since is not None and now - child.stopped_since > STOPPED_S:
            return True
        if child.board is None:
            return now - child.started > (self.plan.get("start_timeout_s") or START_S)
        state = child.board.read()
        return bool(0 < min(state["until"], state["phase_until"]) < now)

    def watch(self) -> tuple[str, list[Child]] | None:
        """Waits until all ranks ended, or there is trouble. Returns the trouble or None."""
        while any(child.code is None for child in self.children):
            self.listen(POLL_S)
            self.load.look([child.process.pid for child in self.children])
            reap(self.children)
            found = self.trouble()
            if found:
                return found
        return None

    def listen_on(self, seconds: float) -> None:
        """Gives the ranks time for more output, because some have only begun to notice the
        fault."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and any(child.code is None for child in self.children):
            self.listen(POLL_S)
            reap(self.children)

    def first_links(self) -> dict[str, Any]:
        """Reports what NVML gave at the start."""
        if self.nvml is not None:
            self.links, self.nvml = self.nvml.answer(NVML_S), None
        return self.links or nothing_read()

    def end_ranks(self) -> None:
        """Ends every rank and all processes that it started. Names those that survive SIGKILL: the
        node is unfit."""
        for child in self.children:
            end_session(child.process.pid)
        until = time.monotonic() + 5
        while time.monotonic() < until and any(child.code is None for child in self.children):
            self.listen(0.02)
            reap(self.children)
        for child in self.children:
            if child.code is None:
                state, wchan = process_state(child.process.pid)
                self.event(
                    "unkillable", rank=child.rank, pid=child.process.pid, state=state, wchan=wchan
                )
        self.listen(0)

    def work(self) -> int:
        """Does all of the agent's work; exit code 0 if all ranks ended well."""
        try:
            self.event(
                "node_begin",
                nproc=self.plan["nproc"],
                python=self.plan.get("python") or sys.executable,
                pid=os.getpid(),
                machine=boot_id(),
            )
            self.listen_to_launcher()
            self.start()
            found = self.watch()
            self.event("load", **self.load.answer())
            if found:
                if found[0] == "died":
                    self.listen_on(GRACE_S)
                self.drain()
                report_exits(self)
                if found[0] != "stopped" and any(child.code is None for child in self.children):
                    collect_evidence(self, found[0])
            report_transports(self)
            return 1 if found else 0
        except OSError as problem:
            self.event(
                "node_failed",
                message="%s: %s" % (problem.filename or "", problem.strerror or problem),
            )
            return 1
        finally:
            self.end_ranks()
            self.event(
                "node_end",
                reason=self.stop,
                codes={child.rank: child.code for child in self.children},
            )
            shutil.rmtree(self.folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                if self.plan.get("remove_self") and OWN_FOLDER:
                    shutil.rmtree(OWN_FOLDER)


def begin_rank() -> None:
    """Runs in a rank before exec. SIGUSR1 requests stacks; until its handler is installed, the
    signal must not end the process."""
    die_with_parent()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def rank_environment(
    plan: dict[str, Any], rank: int, local_rank: int, folder: str, inherited: Mapping[str, str]
) -> dict[str, str]:
    """The rank's environment: torchrun's variables, the plan's settings for all ranks and for this
    rank. The caller's own settings stay in force."""
    environment = dict(inherited)
    environment.update({
        "RANK": str(rank), "WORLD_SIZE": str(plan["world_size"]), "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(plan["nproc"]),
        "MASTER_ADDR": str(plan["master_address"]), "MASTER_PORT": str(plan["master_port"]),
        "UNHANG_SMOKE_PLAN": json.dumps(dict(plan, watched=True)),
        "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": inherited.get("PYTHONWARNINGS", "ignore"),
        "OMP_NUM_THREADS": inherited.get("OMP_NUM_THREADS", "1"),
    })  # fmt: skip
    for name, value in (
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "100"), ("TORCH_FR_BUFFER_SIZE", "100"),
        ("TORCH_CPP_LOG_LEVEL", "ERROR"), ("NCCL_DEBUG", "INFO"),
        ("NCCL_DEBUG_SUBSYS", "INIT,BOOTSTRAP,ENV,NET,GRAPH"),
        ("NCCL_DEBUG_FILE", os.path.join(folder, "nccl-%d.log" % rank)),
    ):  # fmt: skip
        environment.setdefault(name, value)
    if plan.get("gloo_interface"):
        environment.setdefault("GLOO_SOCKET_IFNAME", plan["gloo_interface"])
    environment.update(plan.get("environment") or {})
    environment.update((plan.get("rank_environment") or {}).get(str(rank)) or {})
    return {name: str(value) for name, value in environment.items() if value is not None}


def run_agent(plan: dict[str, Any]) -> int:
    """Runs the agent with signal handlers installed: SIGTERM ends the ranks too."""
    agent = Agent(plan)
    end_politely(lambda _: setattr(agent, "stop", agent.stop or "a signal"))
    return agent.work()
