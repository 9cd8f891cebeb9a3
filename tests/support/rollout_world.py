"""A model of nodes and their scheduler for the simulation of a rollout: boots, locks, drains, jobs,
roles, and their faults. It carries out its orders and records in `log` what really happened; it
decides nothing about a rollout."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping
from typing import Any

from unhang.act.rollout.steps import Order, StepResult, Target

FAULTS = (
    "apply fails", "apply vanishes", "apply hangs", "says ok and does nothing", "trial boot fails",
    "vanishes before its reboot", "vanishes during its reboot",
    "vanishes after its reboot", "does not boot", "wrong kernel", "wrong driver", "audit fails",
    "smoke fails", "smoke together fails", "fails under load", "nobody is named",
    "drain refused", "scheduler gone", "scheduler gone at the end", "a job that never ends",
    "drained by somebody else", "drained by somebody else under way",
    "rollback fails", "rollback says ok and does nothing", "rollback vanishes",
    "crashes in between", "lock cannot be written", "another run has it",
    "booted since the plan", "boots before its release", "boots before its apply",
    "undrained before its apply", "undrained before its reboot", "a job that ends later",
)  # fmt: skip
DIES = "boots after its release"  # only in rollouts whose released nodes soak
ROLLBACK_FAULTS = (
    "rollback fails",
    "rollback says ok and does nothing",
    "rollback vanishes",
    "scheduler gone at the end",
)


@dataclasses.dataclass
class Node:
    """The real state of one node. was, wants: (kernel, driver) before the plan and of the plan;
    trial: its kernel is tried by a trial boot."""

    host: str
    faults: set[str]
    wants: tuple[str, str] = ("k2", "d2")
    trial: bool = False
    boot: int = 1
    token: int = 0
    holder: str | None = None
    installed: tuple[str, str] = ("k1", "d1")
    running: tuple[str, str] = ("k1", "d1")
    trial_done: bool = False
    up: bool = True
    jobs: list[str] = dataclasses.field(default_factory=list)
    drained_by: str | None = None
    was: tuple[str, str] = ("k1", "d1")

    @property
    def boot_id(self) -> str:
        return f"{self.host}-boot-{self.boot}"


class World:
    """All nodes; log: (what, host, detail) in the order in which it happened.

    beside: nodes of the fleet that are in no wave, and whether another user has drained them.
    """

    def __init__(self, nodes: list[Node], beside: Mapping[str, bool] | None = None) -> None:
        self.nodes = {node.host: node for node in nodes}
        self.beside = dict(beside or {})
        self.log: list[tuple[str, str, Any]] = []
        for node in nodes:
            if "booted since the plan" in node.faults:
                node.boot += 1
            if "a job that never ends" in node.faults:
                node.jobs = ["job-without-end"]
            if "a job that ends later" in node.faults:
                node.jobs = ["long-job"]
            if "drained by somebody else" in node.faults:
                node.drained_by = "ops"
            if "another run has it" in node.faults:
                node.holder = "elsewhere"

    def note(self, what: str, host: str, detail: Any = None) -> None:
        self.log.append((what, host, detail))

    def fleet(self) -> set[str]:
        """Every host that the scheduler knows."""
        return {*self.nodes, *self.beside}

    def listed(self) -> dict[str, str]:
        """{host: who took it out of service}, as the scheduler lists it now."""
        out = {node.host: node.drained_by for node in self.nodes.values() if node.drained_by} | {
            host: "ops" for host, drained in self.beside.items() if drained
        }
        self.note("listed", "", frozenset(out))
        return out

    def drained_by_others(self, dice: random.Random) -> None:
        """Another user drains a node of the fleet, or resumes one that is in no wave."""
        host = dice.choice(sorted(self.fleet()))
        if host in self.beside:
            self.beside[host] = not self.beside[host]
            self.note(
                "drained by somebody else" if self.beside[host] else "resumed by somebody else",
                host,
            )
        elif self.nodes[host].drained_by is None:
            self.nodes[host].drained_by = "ops"
            self.note("drained by somebody else", host)

    def take_over(self, dice: random.Random) -> None:
        """Another run takes over one of the nodes, because a user declared that the first run is
        over."""
        node = dice.choice(list(self.nodes.values()))
        if node.up and node.holder not in (None, "elsewhere"):
            node.holder, node.token = "elsewhere", node.token + 1
            self.note("taken over", node.host)

    def carry_out(
        self, orders: list[Order], run: str, targets: dict[str, Target]
    ) -> Iterator[dict[str, StepResult]]:
        """Yields {} between the parts of an act, where a controller may die, and finally the
        answers of all hosts."""
        answers: dict[str, StepResult] = {}
        if orders[0].step == "smoke_together":
            yield {}
            yield self._together(orders)
            return
        for order in orders:
            node = self.nodes[order.host]
            part = getattr(self, f"_{order.step}")(node, order, run)
            yield {}
            try:
                while True:
                    next(part)
                    yield {}
            except StopIteration as done:
                answers[order.host] = done.value
        yield answers

    # Checks before each act on a node: the node answers, and its number is not higher.
    def _refuses(self, node: Node, order: Order) -> StepResult | None:
        if not node.up:
            return StepResult("silent", {"why": "unreachable"})
        if order.token != node.token or node.holder is None:
            return StepResult(
                "fenced", {"why": f"the node's number is {node.token}", "holder": node.holder}
            )
        return None

    def _in_use(self, node: Node, step: str) -> StepResult | None:
        """Somebody has ended the drain, and a job has started; the step looks before it acts."""
        if f"undrained before its {step}" not in node.faults:
            return None
        node.faults.discard(f"undrained before its {step}")
        node.drained_by, node.jobs = None, ["a-job-since"]
        self.note("resumed by somebody else", node.host)
        return StepResult(
            "failed", {"why": "expected it drained, found a-job-since", "free": False}
        )

    def _crash(self, node: Node, at: str) -> None:
        if "crashes in between" in node.faults:
            node.faults.discard("crashes in between")
            self._boots(node, f"by itself in {at}")

    def _boots(self, node: Node, kind: str) -> None:
        self.note("boot", node.host, kind)
        node.boot += 1
        node.running = node.installed
        if "wrong kernel" in node.faults and kind == "reboot":
            node.running = (node.was[0], node.running[1])
        if "wrong driver" in node.faults and kind == "reboot":
            node.running = (node.running[0], node.was[1])

    def _lock(self, node: Node, order: Order, run: str):
        yield
        if not node.up:
            return StepResult("silent", {"why": "unreachable"})
        if "lock cannot be written" in node.faults:
            return StepResult("failed", {"why": "No space left on device"})
        if node.holder not in (None, run):
            return StepResult(
                "failed",
                {"why": f"found run {node.holder} at work", "holder": {"run": node.holder}},
            )
        node.holder, node.token = run, node.token + 1
        self.note("lock", node.host, run)
        return StepResult("ok", {"fencing": node.token, "boot_id": node.boot_id})

    def _drain(self, node: Node, order: Order, run: str):
        yield
        if refused := self._refuses(node, order):
            return refused
        if "drain refused" in node.faults:
            return StepResult("failed", {"why": "access denied"})
        if "scheduler gone" in node.faults:
            return StepResult("failed", {"why": "slurmctld does not answer"})
        if node.drained_by is None:
            node.drained_by = f"unhang {run}"
            self.note("drain", node.host, run)
        return StepResult(
            "ok",
            {
                "drained": True,
                "owned": node.drained_by == f"unhang {run}",
                "by": node.drained_by,
                "reason": "x",
                **self._jobs(node),
            },
        )

    def _jobs(self, node: Node) -> dict[str, Any]:
        """The node's jobs; one that ends later has ended when it is asked for again."""
        if "a job that ends later" in node.faults:
            node.faults.discard("a job that ends later")
            return {"jobs": list(node.jobs), "over": False}
        if "a job that never ends" not in node.faults:
            node.jobs = []
        return {"jobs": list(node.jobs)}

    def _wait(self, node: Node, order: Order, run: str):
        yield
        if refused := self._refuses(node, order):
            return refused
        return StepResult("ok", self._jobs(node))

    def _save(self, node: Node, order: Order, run: str):
        yield
        if "boots before its apply" in node.faults:
            node.faults.discard("boots before its apply")
            self._boots(node, "by itself before its apply")
        return self._refuses(node, order) or StepResult("ok", {})

    def _apply(self, node: Node, order: Order, run: str):
        yield
        if refused := self._refuses(node, order) or self._has_booted(node, order):
            return refused
        if refused := self._in_use(node, "apply"):
            return refused
        if "says ok and does nothing" in node.faults:
            return StepResult("ok", {"boot_id": node.boot_id, "needs_reboot": False})
        if node.trial and not node.trial_done:
            if order.reboots_left < 1:
                return StepResult("failed", {"why": "no reboot left", "boot_id": node.boot_id})
            self.note("change", node.host, list(node.jobs))
            node.installed = (node.wants[0], node.installed[1])
            yield
            if refused := self._refuses(node, order) or self._in_use(node, "trial"):
                return (
                    refused
                    if refused.status != "failed"
                    else StepResult(
                        "failed", {**refused.evidence, "boot_id": node.boot_id, "free": True}
                    )
                )
            node.trial_done = True
            if "trial boot fails" in node.faults:
                self.note("boot", node.host, "trial")
                node.boot += 1
                node.installed = (node.was[0], node.installed[1])
                return StepResult(
                    "failed", {"why": "the new kernel did not come up", "boot_id": node.boot_id}
                )
            self._boots(node, "trial")
            yield
        if refused := self._refuses(node, order):
            return refused
        self.note("change", node.host, list(node.jobs))
        node.installed = ((node.wants[0] if not node.trial else node.installed[0]), "d-half")
        yield
        if "apply vanishes" in node.faults:
            node.up = False
            return StepResult("silent", {"why": "unreachable"})
        if "apply hangs" in node.faults:
            return StepResult("silent", {"why": "no answer in 1800 s"})
        if refused := self._refuses(node, order):
            return refused
        if "apply fails" in node.faults:
            return StepResult(
                "failed", {"why": "apt: held broken packages", "boot_id": node.boot_id}
            )
        self._crash(node, "apply")
        node.installed = (node.installed[0], node.wants[1])
        return StepResult(
            "ok", {"boot_id": node.boot_id, "needs_reboot": node.running != node.installed}
        )

    def _has_booted(self, node: Node, order: Order, **seen: str) -> StepResult | None:
        """As node_lock with boot_id."""
        if node.boot_id == order.boot_id:
            return None
        why = f"expected the boot {order.boot_id}, found {node.boot_id}: the node has booted"
        return StepResult("failed", {"why": why, "untouched": True, **seen})

    def _reboot(self, node: Node, order: Order, run: str, kind: str = "reboot"):
        if "vanishes before its reboot" in node.faults:
            node.up = False
        yield
        if refused := self._refuses(node, order):
            return refused
        if (
            kind == "reboot"
            and not order.again
            and (refused := self._has_booted(node, order, boot_id=node.boot_id))
        ):
            return refused
        if node.boot_id == order.boot_id and (refused := self._in_use(node, kind)):
            return refused
        if "says ok and does nothing" not in node.faults and node.boot_id == order.boot_id:
            self.note("change", node.host, list(node.jobs))
            self._boots(node, kind)
        if node.faults & {"vanishes during its reboot", "does not boot"}:
            node.up = False
        yield
        if refused := self._refuses(node, order):
            return refused
        if "vanishes after its reboot" in node.faults:
            node.up = False
        return StepResult(
            "ok",
            {
                "boot_id": node.boot_id,
                "running": {"kernel": node.running[0], "driver": node.running[1]},
            },
        )

    def _verdict(self, node: Node, order: Order, good: bool) -> StepResult:
        self.note("verdict", node.host, (order.step, good, node.boot))
        return StepResult("ok", {"healthy": good, "boot_id": node.boot_id})

    def _audit(self, node: Node, order: Order, run: str):
        yield
        if refused := self._refuses(node, order):
            return refused
        return self._verdict(
            node, order, "audit fails" not in node.faults and node.running == node.wants
        )

    def _smoke_alone(self, node: Node, order: Order, run: str):
        yield
        if refused := self._refuses(node, order):
            return refused
        self._crash(node, "smoke_alone")
        if "drained by somebody else under way" in node.faults:
            node.drained_by = "ops"
            self.note("drained by somebody else", node.host)
        return self._verdict(node, order, "smoke fails" not in node.faults)

    def _together(self, orders: list[Order]) -> dict[str, StepResult]:
        answers, asked = dict[str, StepResult](), list[tuple[Node, Order]]()
        for order in orders:
            node = self.nodes[order.host]
            refused = self._refuses(node, order)
            if refused:
                answers[order.host] = refused
            else:
                asked.append((node, order))
        bad = {node.host for node, _ in asked if "smoke together fails" in node.faults}
        if bad and any("nobody is named" in node.faults for node, _ in asked):
            bad = {node.host for node, _ in asked}
        return answers | {
            node.host: self._verdict(node, order, node.host not in bad) for node, order in asked
        }

    def _roll_back(self, node: Node, order: Order, run: str):
        yield
        if refused := self._refuses(node, order):
            return refused
        if refused := self._in_use(node, "roll_back"):
            return refused
        if "rollback fails" in node.faults:
            return StepResult("failed", {"why": "a package is gone", "boot_id": node.boot_id})
        if "rollback vanishes" in node.faults:
            node.up = False
            return StepResult("silent", {"why": "unreachable"})
        self.note("change", node.host, list(node.jobs))
        came_back = node.installed != node.was
        if "rollback says ok and does nothing" not in node.faults:
            node.installed, node.trial_done = node.was, False
        yield
        # It reports only what it has restored itself: a repeated rollback, after the first answer
        # was lost, finds nothing more to restore.
        return StepResult("ok", {"boot_id": node.boot_id, "needs_reboot": came_back})

    def _reboot_back(self, node: Node, order: Order, run: str):
        return self._reboot(node, order, run, "rollback")

    def _audit_again(self, node: Node, order: Order, run: str):
        yield
        if refused := self._refuses(node, order):
            return refused
        return self._verdict(node, order, "fails under load" not in node.faults)

    def _audit_back(self, node: Node, order: Order, run: str):
        yield
        if refused := self._refuses(node, order):
            return refused
        return self._verdict(node, order, node.running == node.was)

    def _keep(self, node: Node, order: Order, run: str):
        yield
        if refused := self._refuses(node, order):
            return refused
        if "scheduler gone at the end" in node.faults:
            return StepResult("failed", {"why": "slurmctld does not answer"})
        if node.drained_by in (None, f"unhang {run}"):
            node.drained_by = f"unhang {run}"
            self.note("kept", node.host, order.why)
        yield
        node.holder = None
        self.note("unlock", node.host)
        return StepResult("ok", {})

    def _release(self, node: Node, order: Order, run: str):
        yield
        if refused := self._refuses(node, order):
            return refused
        if "boots before its release" in node.faults:
            node.faults.discard("boots before its release")
            self._boots(node, "by itself before its release")
        if order.boot_id not in (None, node.boot_id):
            return StepResult("failed", {"why": "it has booted since", "boot_id": node.boot_id})
        if "scheduler gone at the end" in node.faults:
            return StepResult("failed", {"why": "slurmctld does not answer"})
        owned, boot_id = node.drained_by == f"unhang {run}", node.boot_id
        if owned:
            self.note("undrain", node.host, (node.drained_by, node.boot))
            node.drained_by = None
            if DIES in node.faults and order.boot_id is not None:
                node.faults.discard(DIES)
                self._boots(node, "by itself after its release")
        yield
        node.holder = None
        self.note("unlock", node.host)
        held = f"drained by {node.drained_by}" if node.drained_by else ""
        return StepResult(
            "ok",
            {
                "boot_id": boot_id,
                "drained": node.drained_by is not None,
                "owned": False,
                "drained_by_others": held,
            },
        )
