"""The burn-in's agent: refuses if a GPU is in use, starts a worker for each GPU, reads sensors, and ends all of them in every case."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from .burn_dcgm import DCGM_LIMIT_S, dcgm_level, run_dcgm
from .burn_guard import refusals, settled, visible_gpus
from .burn_looks import Looks
from .burn_sensors import PERIOD_S, Sensors, first_answer
from .burn_tally import Tally
from .events import emit
from .leftovers import PREFIX, hold_folder
from .limits import LINE_BYTES, MOST_READS, POLL_S
from .mapped import boot_id
from .nvml import NVML_S
from .processes import die_with_parent, end_session, process_state, signal_name
from .watched import Watched, add_output, end_politely, listen_to, reap, start_process

PREPARE_S, SILENT_S = 240.0, 90.0  # for a worker to be ready; without any event after that
ENDING_S, KILLED_S, HURRY_S = 3.0, 2.0, 1.5  # from SIGTERM to SIGKILL; from SIGKILL to the end; for NVML after a signal: together less than 10 s
PROGRESS_S = 10.0
DONE = ("count", "seconds", "work", "wrong", "slowest", "fastest")


class BurnChild(Watched):
    """One worker as its agent sees it. done: work done so far by type; message: the worker's own reason for ending."""

    def __init__(self, gpu: int, process: subprocess.Popen[bytes], events: int) -> None:
        super().__init__(process, events)
        self.gpu = gpu
        self.heard = time.monotonic()
        self.phase, self.ready = "start", False
        self.uuid: str | None = None
        self.message: str | None = None
        self.done: dict[str, dict[str, Any]] = {}


class BurnAgent:
    """plan: {device, nproc or None, duration_s, round_s, python, types, memory_bytes, drill, watch_stdin}."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.host = plan.get("host") or socket.gethostname()
        self.children: list[BurnChild] = []
        self.selector = selectors.DefaultSelector()
        self.stop: str | None = None
        self.trouble: str | None = None
        self.tally = Tally()
        self.sensors: Sensors | None = None
        self.uuids: list[str] = []
        self.began = time.monotonic()
        self.progress = self.began
        self.looks = Looks(plan["device"] == "cuda")

    def event(self, kind: str, **fields: Any) -> None:
        """An event of this node."""
        emit(1, kind, host=self.host, **fields)

    def work(self) -> int:
        """0 the workers finished their work, 1 something failed, 2 refused."""
        self.event("burn_begin", device=self.plan["device"], duration_s=self.plan["duration_s"], machine=boot_id(), pid=os.getpid())
        before: dict[str, Any] = {"settings": [], "problem": None}
        if self.plan["device"] == "cuda":
            self.sensors = Sensors(PERIOD_S)
            before = first_answer(self.sensors, NVML_S)
            self.uuids = [row["uuid"] for row in before["settings"]]
        reasons = refusals(self.plan, before)
        if not reasons:
            self.ask_dcgm()
        if reasons or self.stop:
            self.close_sensors()
            self.event("refused", reasons=reasons or ["ended by %s before it began" % self.stop])
            return 2
        try:
            self.looks.take("before", NVML_S)
            visible = visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), len(before["settings"]))
            self.start(self.plan.get("nproc") or visible)
            self.watch()
        except OSError as problem:
            self.trouble = "%s: %s" % (problem.filename or "", problem.strerror or problem)
        finally:
            self.end_workers()
        self.finish(before)
        return 1 if self.trouble or any(child.code for child in self.children) else 0

    def ask_dcgm(self) -> None:
        """Runs NVIDIA's own diagnosis, if installed. It uses the GPUs itself, so it runs before the load."""
        level = dcgm_level(self.plan["duration_s"])
        answer = run_dcgm(level, DCGM_LIMIT_S[level], lambda: bool(self.stop)) if self.plan["device"] == "cuda" else None
        if answer is not None:
            self.event("dcgm", **answer)
            settled(HURRY_S if self.stop else NVML_S)

    def finish(self, before: dict[str, Any]) -> None:
        """Reports the measurements, and the state of the GPUs now beside their state before."""
        after: dict[str, Any] = {"settings": [], "problem": None}
        self.close_sensors()
        if self.plan["device"] == "cuda":
            limit_s = HURRY_S if self.stop else NVML_S
            self.looks.take("after", limit_s)
            after = settled(limit_s)
        self.event(
            "burn_end", reason=self.stop, trouble=self.trouble, seconds=round(time.monotonic() - self.began, 1),
            workers=[
                {"gpu": child.gpu, "uuid": child.uuid, "code": child.code, "ready": child.ready, "phase": child.phase, "done": child.done}
                for child in self.children
            ],
            readings=self.tally.report(), power_w=self.tally.mean_power(), counters=self.looks.rows, before=before, after=after,
        )  # fmt: skip

    def start(self, nproc: int) -> None:
        """All workers, each in a session of its own."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            meeting = "tcp://127.0.0.1:%d" % probe.getsockname()[1]
        for gpu in range(nproc):
            self.children.append(self.start_worker(gpu, dict(self.plan, nproc=nproc, meeting=meeting)))
        if self.plan.get("watch_stdin"):
            os.set_blocking(0, False)
            self.selector.register(0, selectors.EVENT_READ, "stdin")

    def start_worker(self, gpu: int, plan: dict[str, Any]) -> BurnChild:
        """One worker with its pipe for events."""
        argv = [plan.get("python") or sys.executable, "-u", os.path.abspath(__file__), "worker", "--gpu", str(gpu)]
        environment = dict(
            os.environ, UNHANG_BURN_IN_PLAN=json.dumps(plan), CUDA_DEVICE_ORDER="PCI_BUS_ID", PYTHONWARNINGS="ignore", TORCH_CPP_LOG_LEVEL="ERROR"
        )
        process, events = start_process(argv, environment, die_with_parent)
        child = BurnChild(gpu, process, events)
        listen_to(child, self.selector)
        return child

    def watch(self) -> None:
        """Runs until all workers have ended, one of them fails or is silent, or a stop is requested."""
        while any(child.code is None for child in self.children) and not self.stop and not self.trouble:
            self.listen(POLL_S)
            self.read_sensors()
            self.looks.take_if_due()
            self.report_progress()
            reap(self.children)
            self.find_trouble()

    def find_trouble(self) -> None:
        """Sets trouble where a worker failed or has reported nothing for too long."""
        now = time.monotonic()
        failed = [child for child in self.children if child.code not in (None, 0)]
        silent = [child for child in self.children if child.code is None and now - child.heard > (SILENT_S if child.ready else PREPARE_S)]
        if failed:
            self.listen(POLL_S)
            self.trouble = "a worker failed"
        elif silent:
            self.trouble = "a worker is silent"
        for child in failed:
            self.event("worker_exit", gpu=child.gpu, code=child.code, signal=signal_name(child.code or 0), message=child.message, output=child.output[-10:])
        for child in silent if not failed else ():
            state, wchan = process_state(child.process.pid)
            self.event("silent", gpu=child.gpu, phase=child.phase, seconds=round(now - child.heard, 1), state=state, wchan=wchan)

    def listen(self, wait_s: float) -> bool:
        """Reads the workers' output, for at most wait_s. Returns whether there was any."""
        ready = self.selector.select(wait_s)
        for key, _ in ready:
            try:
                piece = os.read(key.fd, 65536)
            except BlockingIOError:
                continue
            if key.data == "stdin":
                if not piece:
                    self.selector.unregister(0)
                    self.stop = self.stop or "the end of its launcher"
            elif not piece:
                self.selector.unregister(key.fileobj)
            elif key.fd == key.data.events:
                self.hear(key.data, piece)
            else:
                add_output(key.data, piece)
        return bool(ready)

    def hear(self, child: BurnChild, piece: bytes) -> None:
        """Handles complete events: progress is only recorded, because there are very many such events; all others are passed on."""
        *lines, child.buffer = (child.buffer + piece).split(b"\n")
        child.buffer = child.buffer[-LINE_BYTES:]
        child.heard = time.monotonic()
        for line in lines:
            event = json.loads(line)
            if event["e"] == "phase":
                child.phase = event["phase"]
                continue
            if event["e"] == "work":
                child.done[event["what"]] = {name: event[name] for name in DONE}
                continue
            child.uuid = event.get("uuid") or child.uuid
            child.ready = child.ready or event["e"] == "ready"
            child.message = event.get("message") or child.message
            with contextlib.suppress(OSError):
                os.write(1, line[:LINE_BYTES] + b"\n")

    def read_sensors(self) -> None:
        """Adds the sensors' readings to the tally, by the current work of each GPU."""
        phases = {child.uuid: child.phase for child in self.children}
        for line in self.sensors.lines() if self.sensors else ():
            for uuid, reading in zip(self.uuids, line["gpus"]):
                self.tally.add(uuid, phases.get(uuid, "start"), reading, line["at"])

    def report_progress(self) -> None:
        """Reports from time to time what all workers have done."""
        now = time.monotonic()
        if now - self.progress >= PROGRESS_S:
            self.progress = now
            rows = [row for child in self.children for row in child.done.values()]
            ready, count, wrong = sum(child.ready for child in self.children), sum(row["count"] for row in rows), sum(row["wrong"] for row in rows)
            self.event("progress", seconds=round(now - self.began), ready=ready, workers=len(self.children), results=count, wrong=wrong)

    def end_workers(self) -> None:
        """Asks workers to end, so that they can report their work; then sends SIGKILL. Survivors are named."""
        for number, limit_s in ((signal.SIGTERM, ENDING_S), (signal.SIGKILL, KILLED_S)):
            for child in self.children:
                if child.code is None and number == signal.SIGTERM:
                    with contextlib.suppress(OSError):
                        child.process.terminate()
                elif number == signal.SIGKILL:
                    end_session(child.process.pid)
            until = time.monotonic() + limit_s
            while time.monotonic() < until and any(child.code is None for child in self.children):
                self.listen(0.02)
                reap(self.children)
        for _ in range(MOST_READS):
            if not self.listen(0):
                break
        for child in self.children:
            if child.code is None:
                state, wchan = process_state(child.process.pid)
                self.event("worker_unkillable", gpu=child.gpu, pid=child.process.pid, state=state, wchan=wchan)

    def close_sensors(self) -> None:
        """Ends the child that reads the sensors."""
        if self.sensors:
            self.sensors.end()
            self.sensors = None


def run_burn_agent(plan: dict[str, Any]) -> int:
    """Runs the agent with signal handlers installed: SIGTERM ends the workers too."""
    agent = BurnAgent(plan)
    own = os.path.dirname(os.path.abspath(__file__))
    if os.path.basename(own).startswith(PREFIX):
        hold_folder(own, plan["duration_s"] + PREPARE_S + max(DCGM_LIMIT_S.values()))
    end_politely(lambda number: setattr(agent, "stop", agent.stop or signal.Signals(number).name))
    return agent.work()
