"""`unhang watch --all`: one process finds the jobs of this machine as they come, and watches each
with a detector of its own. All are sampled in one pass, and looked at one after another."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from unhang.core.errors import UserError
from unhang.core.text import visible
from unhang.jobs.commands.watch_one import Job, stopped_by_signals, watched
from unhang.jobs.commands.watch_outputs import METRICS_EVERY_S, Outputs, write_metrics
from unhang.jobs.inspect.ways import arguments_of, read_slurm_job
from unhang.jobs.watch.alerts import Alerts
from unhang.jobs.watch.detector import Tick, ranks_by_gpu
from unhang.jobs.watch.of_all import Looking, moments
from unhang.jobs.watch.of_pods import LABEL, LEFT_OUT, WATCHED, Cluster, Pod, cluster_of
from unhang.jobs.watch.of_slurm import (
    cancel,
    how_it_ended,
    write_admin_comment,
)
from unhang.jobs.watch.record import UNSEEN, Record, keep
from unhang.jobs.watch.when_to_look import Turn

# A user's comment of a job of Slurm; any other text is none.
OFF, TERMINATE = "unhang:off", "unhang:terminate"
NO_PODS = "names and labels of its pods are not known: "
NO_COMMENT = "its comment is not known, and whether it is to be left out or ended: "
CLOSING_S = 10.0  # for all watches together, when the command is stopped
# A step has ended on the node before slurmctld knows how its job did.
ASKED_TIMES, ASKED_EVERY_S = 12, 5.0


@dataclass
class Site:
    """What the watches of a machine share."""

    outputs: Outputs
    cluster: Cluster | None = None
    host: str = ""
    watches: dict[str, Watch] = field(default_factory=dict)
    ending: list[Watch] = field(default_factory=list)
    looking: Looking = field(default_factory=Looking)
    stop: threading.Event = field(default_factory=threading.Event)
    alerts: Alerts = field(default_factory=Alerts)
    said: set[str] = field(default_factory=set)
    written: float = 0.0

    def say_once(self, text: str) -> None:
        """Prints what would be the same for each job."""
        if text not in self.said:
            self.said.add(text)
            self.outputs.say(text)

    def takes(self, moment: Mapping[str, Any]) -> None:
        """Takes a line of the sampler."""
        self.host = moment["host"]
        for came in moment["came"]:
            watch = self.watches.get(came["job"])
            if watch is None:
                watch = self.watches[came["job"]] = Watch(self, came, self._name_of(came))
                watch.thread.start()
            watch.give([came["header"]])
        for job, samples in moment["jobs"].items():
            if job in self.watches:
                self.watches[job].give([*samples, *moment["gpus"]])
        for job, why in moment["failed"].items():
            if job in self.watches:
                self.watches[job].fails(why)
        for job in moment["ended"]:
            if ended := self.watches.pop(job, None):
                ended.end()
                self.ending.append(ended)
        self.ending = [watch for watch in self.ending if watch.thread.is_alive()]
        for line in self.alerts.of(Tick(moment["t"], nics=moment["nics"])):
            self.outputs.say(line)
        for why in moment["left_out"]:
            self.say_once(visible(why, 400))
        if moment["problem"]:
            self.say_once(f"jobs that came were not found: {visible(moment['problem'], 200)}")
        self._write_metrics()

    def _name_of(self, came: Mapping[str, Any]) -> str:
        """Of numbers alone, unlike for each job that is watched now."""
        pid = came["header"]["ranks"][0]["pid"]
        name = (
            f"slurm {came['slurm_job']}"
            if came["slurm_job"]
            else f"pod {came['pods'][0]}"
            if came["pods"]
            else f"pid {pid}"
        )
        taken = {watch.name for watch in (*self.watches.values(), *self.ending)}
        return name if name not in taken else f"{name} pid {pid}"

    def beside(self, watch: Watch) -> list[str]:
        """Other jobs that run in the same job of Slurm here, which would be ended with it."""
        return [
            other.name
            for other in list(self.watches.values())
            if other is not watch and other.slurm_job == watch.slurm_job
        ]

    def _write_metrics(self) -> None:
        path = self.outputs.options.textfile
        if path is None or time.monotonic() - self.written < METRICS_EVERY_S:
            return
        self.written = time.monotonic()
        shown = [watch.outputs for watch in self.watches.values() if watch.thread.is_alive()]
        write_metrics(path, shown, self.outputs)

    def close(self) -> None:
        """Ends all watches; each keeps its record."""
        self.stop.set()
        self.looking.close()
        left, until = [*self.watches.values(), *self.ending], time.monotonic() + CLOSING_S
        for watch in left:
            watch.end()
        for watch in left:
            watch.thread.join(max(0.0, until - time.monotonic()))
            watch.keep(UNSEEN)


class Watch:
    """The watch of one job, in a thread of its own: what fails in it ends no other."""

    def __init__(self, site: Site, came: Mapping[str, Any], name: str) -> None:
        self.site, self.name = site, name
        self.slurm_job: str | None = came["slurm_job"]
        self.is_off: bool = came["is_off"]
        self.uids: list[str] = came["pods"]
        self.pods: list[Pod] = []  # by the API server
        self.turn = Turn(came["user"])
        self.pids: list[int] = [row["pid"] for row in came["header"]["ranks"]]
        self.slurm_name = ""  # as Slurm's commands call it; "" where they did not answer
        self.outputs = replace(
            site.outputs,
            options=msgspec.structs.replace(site.outputs.options, textfile=None),
            say=lambda text: site.outputs.say(f"{self.name}: {text}"),
            job=name,
        )
        self.record = Record(name, site.host)
        self.samples: queue.SimpleQueue[Sequence[Mapping[str, Any]] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._kept = threading.Lock()
        self._failed = ""

    def give(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Hands it samples, which nobody would read where it is over."""
        if self.thread.is_alive():
            self.samples.put(lines)

    def fails(self, why: str) -> None:
        """Takes why its samples could not be read."""
        if why != self._failed:
            self._failed = why
            self.outputs.say(f"its processes were not read: {visible(why, 200)}")

    def end(self) -> None:
        """Its last sample has come."""
        self.samples.put(None)

    def keep(self, how: str) -> None:
        """Keeps the record, once."""
        if not self._kept.acquire(blocking=False):
            return
        self.record.ended(how)
        if problem := keep(self.record, os.environ):
            self.site.say_once(problem)

    def _run(self) -> None:
        try:
            if self._is_left_out():
                self._kept.acquire()  # what was not watched is in no record
                return
            watched(self._job(), self.outputs, self.record)
            if self.outputs.ended:
                self.outputs.say(self.outputs.ended)
        except Exception as problem:  # whatever a job shows, the others are watched
            why = visible(f"{type(problem).__name__}: {problem}", 400)
            self.outputs.say(f"this watch ended: {why}")
        self.keep(self._how_it_ended())

    def _is_left_out(self) -> bool:
        comment = ""
        if self.slurm_job:
            try:
                found = read_slurm_job(self.slurm_job, with_comment=True)
                self.slurm_name, comment = found.name, found.comment
            except UserError as problem:
                self.site.say_once(NO_COMMENT + visible(str(problem), 400))
        self._ask_cluster()
        wishes = {pod.wants for pod in self.pods}
        if self.is_off:
            why = "its environment has UNHANG_WATCH=off"
        elif comment == OFF:
            why = f"its comment is {OFF}"
        elif wishes == {LEFT_OUT}:  # a stranger's rank that claims to be of the job silences none
            why = f"it has the label {LABEL}={LEFT_OUT}"
        elif self.outputs.options.pods == "labelled" and WATCHED not in wishes:
            why = f"neither pod nor namespace has the label {LABEL}={WATCHED}"
        else:
            why = ""
        if why:
            self.outputs.say(f"left out: {why}")
            return True
        if comment == TERMINATE:
            ending = msgspec.structs.replace(self.outputs.options, on_hang="terminate")
            self.outputs.options = ending
            self.outputs.say(
                f"its comment is {TERMINATE}: "
                + ("it is ended if it hangs" if self.outputs.options.act else "in shadow")
            )
        return False

    def _ask_cluster(self) -> None:
        """Learns the pods' names and labels. One that just came may not be known yet."""
        cluster, why = self.site.cluster, ""
        if cluster is None or not self.uids:
            return
        for _ in range(ASKED_TIMES):
            try:
                self.pods, why = cluster.pods(self.uids), "it does not know the pod"
            except UserError as problem:
                why = str(problem)
            if len(self.pods) == len(self.uids):
                break
            if self.site.stop.wait(ASKED_EVERY_S):
                return
        else:
            self.site.say_once(NO_PODS + visible(why, 400))
        for pod in self.pods:
            self.name = self.name.replace(pod.uid, f"{pod.namespace}/{pod.name}")
        self.outputs.job = self.record.job = self.name

    def _job(self) -> Job:
        return Job(
            self._lines(),
            self._look,
            lambda: cancel(self.slurm_name),
            is_ours=True,
            name=self.name,
            is_patient=True,
            spared=self._why_spared,
            reported=self._report,
            wait=self.site.stop.wait,
        )

    def _lines(self) -> Iterator[Mapping[str, Any]]:
        while (lines := self.samples.get()) is not None:
            if self.site.stop.is_set():
                return
            yield from lines

    def _look(self, options: Mapping[str, Any]) -> list[dict[str, Any]]:
        tick = self.outputs.last[0] if self.outputs.last else Tick(0.0)
        left = [row.pid for row in tick.alive.values()]
        given = ["--pid", str((left or self.pids)[0])]
        given += arguments_of({"py_spy": self.outputs.options.py_spy, **options})
        self.turn.has_gpu = any(ranks_by_gpu(tick).values())
        say = str if self.outputs.is_idle else self.outputs.say
        return self.site.looking.look(self.turn, given, say)

    def _why_spared(self) -> str:
        if not self.slurm_name:
            return "Slurm did not say how the job is called"
        others = self.site.beside(self)
        return f"{', '.join(others)} is in the same job of Slurm" if others else ""

    def _report(self, headline: str) -> None:
        if self.outputs.options.job_comment and self.slurm_name:
            try:
                write_admin_comment(self.slurm_name, f"unhang: {headline}")
            except UserError as problem:
                self.outputs.say(f"its AdminComment was not written: {visible(str(problem), 400)}")
        for pod in self.pods:
            try:
                pod.tell(headline.removeprefix(f"{self.name}: "))
            except UserError as problem:
                self.outputs.say(f"no Event on {pod.name}: {visible(str(problem), 400)}")

    def _how_it_ended(self) -> str:
        """FAILED, WELL or UNSEEN; asked only where a verdict is to be judged by it."""
        open_ones = [one for one in self.record.verdicts if not (one.became or one.acted)]
        for _ in range(ASKED_TIMES if open_ones and (self.slurm_job or self.pods) else 0):
            if self.slurm_job:
                how = how_it_ended(self.slurm_job)
            else:
                how = self.pods[0].cluster.how_they_ended(self.uids)
            if how != UNSEEN or self.site.stop.wait(ASKED_EVERY_S):
                return how
        return UNSEEN


def watch_all(outputs: Outputs) -> int:
    """Watches until it is stopped."""
    site = Site(outputs, cluster_of(os.environ) if outputs.options.pods else None)
    with stopped_by_signals():
        every_s = outputs.options.every
        outputs.say(f"all jobs of this machine that may be read, a sample each {every_s:g} s")
        try:
            for moment in moments(every_s, outputs.say):
                site.takes(moment)
        finally:
            site.close()
    return 0
