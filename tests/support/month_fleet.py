"""A thousand nodes for a month: the world of single rollouts with a clock, jobs that come and end,
and nodes, ssh and a scheduler that fail by themselves."""

from __future__ import annotations

import datetime
import heapq
import random
from collections.abc import Callable
from typing import Any

from rollout_simulation import come_back
from rollout_world import Node, World

from unhang.act.rollout.steps import Order, StepResult
from unhang.act.rollout.waiting import waits_until

NODES, RACK = 1000, 25
BEGINS = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
HOUR_S = 3600
JOBS_EACH_S = 600
SIZES = (1, 1, 1, 1, 2, 2, 4, 8, 16)


def partitions() -> dict[str, frozenset[str]]:
    """Racks of 25 and four partitions of Slurm, one of which shares its nodes with two others."""
    hosts = [f"gpu{number:04}" for number in range(NODES)]
    racks = {
        f"rack{number:02}": frozenset(hosts[number * RACK : (number + 1) * RACK])
        for number in range(NODES // RACK)
    }
    return racks | {
        "train": frozenset(hosts[:600]),
        "infer": frozenset(hosts[600:900]),
        "debug": frozenset(hosts[900:]),
        "short": frozenset(hosts[500:700]),
    }


class Fleet(World):
    """now_s: seconds since the month began. see: hears (run at work, what, host, detail) of
    everything that happens. waits_since: (run, host) -> when the rollout began to wait for the
    node's jobs, by its journal; wish: (run, host) -> what its plan wants of the node."""

    def __init__(
        self,
        dice: random.Random,
        see: Callable[..., None],
        waits_since: Callable[[str, str], str],
        wish: Callable[[str, str], Any],
    ) -> None:
        super().__init__([Node(f"gpu{number:04}", set()) for number in range(NODES)])
        self.dice, self.see, self.waits_since, self.wish = dice, see, waits_since, wish
        self.now_s, self.run = 0.0, ""
        self.groups = partitions()
        self.ends: dict[str, float] = {}
        self.on: dict[str, list[str]] = {}
        self.coming: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.closing = False
        self.planned_by: dict[str, str] = {}

    def note(self, what: str, host: str, detail: object = None) -> None:
        self.see(self.run, what, host, detail)

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        """Lets something happen later."""
        self.count += 1
        heapq.heappush(self.coming, (self.now_s + delay_s, self.count, act))

    def every(self, mean_s: float, act: Callable[[], None]) -> None:
        """Lets something happen again and again, at random times."""

        def again() -> None:
            if not self.closing:
                act()
                self.every(mean_s, act)

        self.after(self.dice.expovariate(1 / mean_s), again)

    def pass_until(self, end_s: float) -> None:
        """Everything that happens until then, in its order."""
        while self.coming and self.coming[0][0] <= end_s:
            self.now_s, _, act = heapq.heappop(self.coming)
            act()
        self.now_s = end_s

    def clock(self, at_s: float | None = None) -> str:
        """The time as in a journal."""
        at = BEGINS + datetime.timedelta(seconds=int(self.now_s if at_s is None else at_s))
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")

    def is_in_service(self, node: Node) -> bool:
        return node.up and node.drained_by is None

    def listed(self) -> dict[str, str]:
        out = {
            node.host: node.drained_by or "down"
            for node in self.nodes.values()
            if not self.is_in_service(node)
        }
        self.note("listed", "", frozenset(out))
        return out

    # Jobs: only on nodes in service; a node that is drained keeps those that it has.
    def start_jobs(self) -> None:
        """Fills most of the fleet."""
        free = [node for node in self.nodes.values() if self.is_in_service(node) and not node.jobs]
        self.dice.shuffle(free)
        while len(free) > 0.3 * NODES:
            self._start([free.pop() for _ in range(min(self.dice.choice(SIZES), len(free)))])

    def _start(self, nodes: list[Node]) -> None:
        job, lasts_s = f"job{self.count}", min(self.dice.lognormvariate(0.7, 1.2), 48) * HOUR_S
        self.ends[job], self.on[job] = (
            self.now_s + lasts_s * self.dice.uniform(1, 2),
            [node.host for node in nodes],
        )
        for node in nodes:
            node.jobs.append(job)
        self.after(lasts_s, lambda: self.end_job(job))

    def end_job(self, job: str) -> None:
        for host in self.on.pop(job, ()):
            self.nodes[host].jobs.remove(job)
        self.ends.pop(job, None)

    # Faults of the machine room.
    def lose_power(self) -> None:
        """A node falls, and its jobs with it. It boots in a while."""
        node = self.dice.choice(list(self.nodes.values()))
        self._boots(node, "by itself")
        node.up = False

    def lose_ssh(self) -> None:
        """A node does not answer for some minutes; its jobs run on."""
        node = self.dice.choice(list(self.nodes.values()))
        node.up = False
        self.after(self.dice.uniform(60, HOUR_S), lambda: setattr(node, "up", True))

    def lose_scheduler(self) -> None:
        self.scheduler_is_away = True
        self.after(self.dice.uniform(60, HOUR_S), lambda: setattr(self, "scheduler_is_away", False))

    def mend(self) -> None:
        """Nodes that had fallen come back."""
        come_back(self, self.dice)

    def _boots(self, node: Node, kind: str) -> None:
        super()._boots(node, kind)
        for job in list(node.jobs):
            self.end_job(job)

    # What a rollout's steps find.
    def _lock(self, node: Node, order: Order, run: str):
        answer = yield from super()._lock(node, order, run)
        if answer.status == "ok" and self.planned_by.get(node.host) != run:
            wish = self.wish(run, node.host)
            self.planned_by[node.host] = run
            node.was, node.wants, node.trial, node.trial_done = (
                wish.was,
                wish.wants,
                wish.trial,
                False,
            )
        return answer

    def takes_over(self, node: Node, run: str) -> bool:
        return (node.drained_by or "").startswith("unhang ")

    def _in_use(self, node: Node, step: str) -> StepResult | None:
        if self.scheduler_is_away:
            return StepResult("failed", {"why": "slurmctld does not answer", "free": False})
        if node.drained_by is None or node.jobs:
            return StepResult(
                "failed", {"why": f"expected it drained and free, found {node.jobs}", "free": False}
            )
        return None

    def _wait(self, node: Node, order: Order, run: str):
        yield
        if refused := self._refuses(node, order):
            return refused
        if self.scheduler_is_away:
            return StepResult("failed", {"why": "slurmctld does not answer"})
        if node.drained_by is None:
            return StepResult("failed", {"why": "expected it drained, found it in service"})
        return StepResult("ok", self._jobs(node, run))

    def _jobs(self, node: Node, run: str) -> dict[str, Any]:
        """The node's jobs, until when they are waited for, and whether that is over."""
        ends = [self.clock(self.ends[job]).replace("Z", "+00:00") for job in node.jobs]
        until = waits_until(self.waits_since(run, node.host) or self.clock(), ends)
        return {"jobs": list(node.jobs), "until": until, "over": self.clock() >= until}
