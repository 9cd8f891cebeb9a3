"""What must hold in every minute of a month of rollouts, checked on what really happened to the
nodes. Shares no code with the machine that it checks."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Set
from typing import Any

PROOFS = {"audit", "smoke_alone", "smoke_together", "audit_again"}
OURS = ("trial", "reboot", "rollback")
MOST_FAULTS = 20


@dataclasses.dataclass
class Work:
    """What a rollout has done to a node. verdicts: since its last change or boot."""

    boots: list[str] = dataclasses.field(default_factory=list)
    changed: bool = False
    verdicts: dict[str, bool] = dataclasses.field(default_factory=dict)
    is_released: bool = False
    is_repaired: bool = False

    @property
    def standing(self) -> str:
        """untouched, proved, back or broken."""
        if not self.changed:
            return "untouched"
        if self.is_released or all(self.verdicts.get(step) for step in PROOFS):
            return "proved"
        return "back" if self.verdicts.get("audit_back") or self.is_repaired else "broken"


class MonthChecker:
    """faults: one line for each violation. plans: {run: SimulatedPlan}; nodes: of the fleet, by
    name."""

    def __init__(self) -> None:
        self.plans: dict[str, Any] = {}
        self.nodes: Mapping[str, Any] = {}
        self.faults: list[str] = []
        self.works: dict[str, dict[str, Work]] = defaultdict(lambda: defaultdict(Work))
        self.drained_by: dict[str, str] = {}
        self.locked_by: dict[str, str] = {}
        self.listed: dict[str, Set[str]] = defaultdict(frozenset)
        self.ordered: dict[tuple[str, str], Set[str]] = {}
        self.counts: dict[str, int] = defaultdict(int)

    def see(self, run: str, what: str, host: str, detail: Any) -> None:
        """One more event. run: whose controller is at work; "" for people and the machine room."""
        self.counts[what] += 1
        act = getattr(self, f"_{what.replace(' ', '_')}", None)
        if act is not None:
            act(run, host, detail)

    def _fault(self, line: str) -> None:
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(line)

    def ours(self, run: str) -> set[str]:
        """Nodes that the rollout has drained."""
        return {host for host in self.works[run] if self.drained_by.get(host) == run}

    def harmed(self, run: str) -> set[str]:
        """Nodes that the rollout has taken out of service or has broken."""
        return self.ours(run) | {
            host for host, work in self.works[run].items() if work.standing == "broken"
        }

    def _limits(self, run: str, what: str) -> None:
        harmed = self.harmed(run)
        for limit in self.plans[run].limits.groups:
            if len(harmed & limit.hosts) > limit.out_of_service:
                self._fault(
                    f"{run} {what}: {sorted(harmed & limit.hosts)} harmed, {limit.out_of_service}"
                    " may be"
                )

    def _listed(self, run: str, host: str, out: Set[str]) -> None:
        self.listed[run] = out - self.ours(run)

    def _ordered(self, run: str, host: str, step: str) -> None:
        if step == "drain":
            self.ordered[run, host] = self.listed[run]

    def _drain(self, run: str, host: str, _detail: Any) -> None:
        was_out = host in self.drained_by
        self.works[run][host]
        self.drained_by[host] = run
        self._limits(run, f"drains {host}")
        floor, out = self.plans[run].floor, self.ours(run) | self.ordered[run, host]
        if floor and not was_out and len(self.nodes) - len(out) < floor:
            self._fault(
                f"{run} drains {host}: {len(self.nodes) - len(out)} stay in service, {floor}"
                " have to"
            )

    def _undrain(self, run: str, host: str, detail: Any) -> None:
        if self.drained_by.get(host) != run or detail[0] != f"unhang {run}":
            self._fault(f"{run} releases {host}, which {detail[0]} has drained")
        work = self.works[run][host]
        if work.standing not in ("untouched", "proved"):
            self._fault(f"{run} releases {host} while {work.standing}")
        work.is_released = work.changed
        self.drained_by.pop(host, None)

    def _drained_by_somebody_else(self, _run: str, host: str, _detail: Any) -> None:
        self.drained_by[host] = "ops"

    def _resumed_by_somebody_else(self, _run: str, host: str, _detail: Any) -> None:
        self.drained_by.pop(host, None)

    def _repaired(self, _run: str, host: str, _detail: Any) -> None:
        for works in self.works.values():
            if host in works:
                works[host].is_repaired = True

    def _lock(self, run: str, host: str, _detail: Any) -> None:
        if self.locked_by.get(host, run) != run:
            self._fault(f"{run} locks {host}, which {self.locked_by[host]} has locked")
        self.locked_by[host] = run

    def _unlock(self, _run: str, host: str, _detail: Any) -> None:
        work = self.works[self.locked_by.pop(host, "")][host]
        work.is_released = work.is_released or work.standing == "proved"

    def _taken_over(self, _run: str, host: str, _detail: Any) -> None:
        self.locked_by[host] = "elsewhere"

    def _change(self, run: str, host: str, jobs: list[str]) -> None:
        work = self.works[run][host]
        if jobs:
            self._fault(f"{run} changes {host} under {jobs}")
        if self.locked_by.get(host) != run or host not in self.drained_by:
            self._fault(
                f"{run} changes {host}, locked by {self.locked_by.get(host)}, drained by"
                f" {self.drained_by.get(host)}"
            )
        if not work.changed:
            self._begins_wave(run, host)
        work.changed, work.verdicts, work.is_released, work.is_repaired = True, {}, False, False
        self._limits(run, f"changes {host}")

    def _measure(self, run: str, host: str, jobs: list[str]) -> None:
        if jobs:
            self._fault(f"{run} measures {host} beside {jobs}")

    def _begins_wave(self, run: str, host: str) -> None:
        plan = self.plans[run]
        number = next(at for at, wave in enumerate(plan.waves) if host in wave)
        earlier = {
            one: self.works[run][one].standing
            for wave in plan.waves[:number]
            for one in wave
            if one in self.works[run]
        }
        broken = [one for one, standing in earlier.items() if standing == "broken"]
        failed = [one for one, standing in earlier.items() if standing in ("broken", "back")]
        canaries = [
            one
            for one in plan.limits.canaries & {one for wave in plan.waves[:number] for one in wave}
            if earlier.get(one) != "proved"
        ]
        if broken or canaries or len(failed) > plan.limits.failed:
            self._fault(
                f"{run} begins {host} of wave {number} behind {broken} broken, {failed} failed,"
                f" canaries {canaries}"
            )

    def _boot(self, run: str, host: str, kind: str) -> None:
        if kind in OURS:
            self._ordered_boot(run, host, kind)
        for works in self.works.values():
            if host in works and not works[host].is_released:
                works[host].verdicts = {}

    def _ordered_boot(self, run: str, host: str, kind: str) -> None:
        work = self.works[run][host]
        work.boots.append(kind)
        if self.nodes[host].jobs:
            self._fault(f"{run} boots {host} under {self.nodes[host].jobs}")
        if self.locked_by.get(host) != run:
            self._fault(f"{run} boots {host}, which {self.locked_by.get(host)} has locked")
        if (
            work.boots.count(kind) > 1
            or len([one for one in work.boots if one != "rollback"])
            > self.plans[run].targets[host].reboots
        ):
            self._fault(
                f"{run} boots {host}: {work.boots}, the plan has"
                f" {self.plans[run].targets[host].reboots}"
            )

    def _verdict(self, run: str, host: str, detail: tuple[str, bool, int]) -> None:
        self.works[run][host].verdicts[detail[0]] = detail[1]
