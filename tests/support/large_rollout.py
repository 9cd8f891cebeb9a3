"""A rollout over a whole large fleet, of which one node in a hundred dies meanwhile: half of those
in the middle of their own change. A person brings back what a stop names and types the same command
again, repairs what was kept, and plans anew for what is left. It makes no decision of a rollout."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from typing import Any

from month_checker import MonthChecker
from rollout_simulation import Journal, RandomRollout, SimulatedPlan, controller, target_of
from rollout_world import Node, World

from unhang.act.plan.waves import WaveLimits, plan_waves
from unhang.act.rollout.failure_limit import Limit, Limits, allowed_failures
from unhang.act.rollout.steps import RELEASED

ROWS = 25  # groups of the fleet, each with a limit
DIES, AT_ONCE, IN_A_ROW, FAILURES = "1%", "1%", "10%", "1%"
MOST_COMMANDS, MOST_PLANS = 1000, 10
PARTS_OF_A_WAVE = 2000  # within so many parts of a controller a node dies that has to


class LargeChecker(MonthChecker):
    """The checker of a month, for one rollout in a fleet in which looking at each node at each
    event would take hours. lowest, most, most_in_a_row: of nodes in service, and out of service by
    the rollout."""

    def __init__(self) -> None:
        super().__init__()
        self.unsettled, self.begun = set[str](), set[str]()
        self.wave_of: dict[str, int] = {}
        self.lowest, self.most, self.most_in_a_row = 0, 0, 0

    def follow(self, run: str, plan: SimulatedPlan) -> None:
        """A new plan, after the nodes that an older one had left were repaired."""
        self.plans[run], self.unsettled, self.begun = plan, set(), set()
        self.wave_of = {host: number for number, wave in enumerate(plan.waves) for host in wave}

    def ours(self, run: str) -> set[str]:
        return {host for host, by in self.drained_by.items() if by == run}

    def harmed(self, run: str) -> set[str]:
        return self.ours(run) | {
            host for host in self.unsettled if self.works[run][host].standing == "broken"
        }

    def _drain(self, run: str, host: str, detail: Any) -> None:
        super()._drain(run, host, detail)
        ours = self.ours(run)
        self.most = max(self.most, len(ours))
        self.most_in_a_row = max(
            self.most_in_a_row,
            *(len(ours & limit.hosts) for limit in self.plans[run].limits.groups[1:]),
        )
        self.lowest = min(
            self.lowest, sum(node.up and node.drained_by is None for node in self.nodes.values())
        )

    def _change(self, run: str, host: str, jobs: list[str]) -> None:
        super()._change(run, host, jobs)
        self.unsettled.add(host)

    def _undrain(self, run: str, host: str, detail: Any) -> None:
        super()._undrain(run, host, detail)
        self.unsettled.discard(host)

    def _boot(self, run: str, host: str, kind: str) -> None:
        """A node that was proved or brought back, and dies before its release, is a failed node,
        but not a broken one: the next command looks at it again."""
        work = self.works[run][host] if host in self.unsettled else None
        was = work.standing if work else ""
        super()._boot(run, host, kind)
        if work and kind == "by itself" and was in ("proved", "back"):
            work.is_repaired = True

    def _ordered(self, run: str, host: str, step: str) -> None:
        """A node has begun when its change is ordered: one that dies before the change reaches it
        is completed by the next command, beside others that died."""
        super()._ordered(run, host, step)
        if step == "apply" and host not in self.begun:
            self.begun.add(host)
            self._behind(run, host)

    def _begins_wave(self, run: str, host: str) -> None:
        if host not in self.begun:
            self._fault(f"{run} changes {host}, which nobody has ordered")

    def _behind(self, run: str, host: str) -> None:
        earlier = {one for one in self.unsettled if self.wave_of[one] < self.wave_of[host]}
        broken = sorted(one for one in earlier if self.works[run][one].standing == "broken")
        failed = sorted(
            one for one in earlier if self.works[run][one].standing in ("broken", "back")
        )
        limits = self.plans[run].limits
        canaries = sorted(
            one
            for one in limits.canaries
            if self.wave_of[one] < self.wave_of[host] and self.works[run][one].standing != "proved"
        )
        if broken or canaries or len(failed) > limits.failed:
            self._fault(
                f"{run} begins {host} behind {broken} broken, {failed} failed, canaries {canaries}"
            )


class LargeFleet(World):
    """dead: nodes that are down; died: how many were at any time; to_die: parts of the controller
    until the next ones."""

    def __init__(self, count: int, dice: random.Random, checker: LargeChecker) -> None:
        super().__init__(
            [
                Node(f"gpu{number:05d}", set(), jobs=["job"] if number % 2 else [])
                for number in range(count)
            ]
        )
        self.dice, self.checker, self.run = dice, checker, ""
        self.dead, self.died, self.locks = set[str](), 0, 0
        self.wanted, self.to_die = allowed_failures(DIES, count), list[int]()
        checker.nodes, checker.lowest = self.nodes, count

    def note(self, what: str, host: str, detail: object = None) -> None:
        self.checker.see(self.run, what, host, detail)
        self.locks += what == "lock"
        if (
            what == "lock"
            and self.locks % (len(self.nodes) // (self.wanted + 1)) == 0
            and self.died + len(self.to_die) < self.wanted
        ):
            self.to_die.append(self.dice.randrange(PARTS_OF_A_WAVE))

    def listed(self) -> dict[str, str]:
        out = {
            node.host: node.drained_by or "down"
            for node in self.nodes.values()
            if node.drained_by or not node.up
        }
        self.note("listed", "", frozenset(out))
        return out

    def part(self) -> None:
        """A part of a controller passes, and whoever has to dies."""
        due = self.to_die.count(0)
        self.to_die = [left - 1 for left in self.to_die if left]
        for number in range(due):
            self._die(in_flight=(self.died + number) % 2 == 0)

    def _die(self, in_flight: bool) -> None:
        living = sorted(
            node.host
            for node in self.nodes.values()
            if node.up and (node.holder is not None or not in_flight)
        )
        if not living:
            self.to_die.append(0)  # nobody is in the middle of a change now
            return
        node = self.nodes[self.dice.choice(living)]
        self._boots(node, "by itself")
        node.up, node.jobs = False, []
        self.dead.add(node.host)
        self.died += 1

    def bring_back(self, hosts: set[str]) -> bool:
        """A person powers these nodes on. Gives whether one of them was down."""
        down = hosts & self.dead
        for host in down:
            self.nodes[host].up = True
        self.dead -= down
        return bool(down)

    def repair(self, hosts: set[str]) -> None:
        """A person brings nodes into service that a rollout has left, as they were before it."""
        for node in map(self.nodes.__getitem__, sorted(hosts)):
            node.installed = node.running = node.was
            node.drained_by = None
            self.note("resumed by somebody else", node.host)


@dataclasses.dataclass
class Outcome:
    """plans, commands: how many somebody typed; stops: of the commands, by the failure limit; ends:
    {state: nodes} of each plan."""

    checker: LargeChecker
    fleet: LargeFleet
    plans: int = 0
    commands: int = 0
    stops: int = 0
    waves: int = 0
    journal_bytes: int = 0
    ends: list[Counter[str]] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        ends = "; ".join(
            ", ".join(f"{count} {state}" for state, count in one.most_common()) for one in self.ends
        )
        typed = (
            f"{self.plans} plans of {self.waves} waves, {self.commands} commands, {self.stops}"
            f" stopped ({ends})"
        )
        out = (
            f"at most {self.checker.most} out of service by a rollout, {self.checker.most_in_a_row}"
            " in a row"
        )
        held = f"at least {self.checker.lowest} in service; {out}"
        return (
            f"{len(self.fleet.nodes)} nodes, {self.fleet.died} died: {typed}; {held}; journals"
            f" {self.journal_bytes / 1e6:.1f} MB"
        )


def plan_of(fleet: LargeFleet, hosts: list[str], in_service: str) -> SimulatedPlan:
    """Limits as an operator would give them, and waves as `unhang plan` makes them."""
    count = len(fleet.nodes)
    most = max(1, allowed_failures(AT_ONCE, count))
    every = list(fleet.nodes)
    rows = [
        frozenset(every[number * count // ROWS : (number + 1) * count // ROWS])
        for number in range(ROWS)
    ]
    groups = [
        Limit(f"row {number}", row, max(1, allowed_failures(IN_A_ROW, most)))
        for number, row in enumerate(rows)
    ]
    kinds = {host: "a100" if host.endswith("9") else "h200" for host in hosts}
    waves = plan_waves(
        kinds, WaveLimits(most, tuple((one.out_of_service, frozenset(one.hosts)) for one in groups))
    )
    canaries = frozenset(host for wave in waves if wave.is_canary for host in wave.hosts)
    limits = Limits(
        allowed_failures(FAILURES, count),
        canaries,
        (Limit("the fleet", frozenset(every), most), *groups),
    )
    targets = {host: target_of(fleet.nodes[host]) for host in hosts}
    targets = {
        host: dataclasses.replace(one, boot_id=fleet.nodes[host].boot_id)
        for host, one in targets.items()
    }
    return SimulatedPlan(
        targets, tuple(wave.hosts for wave in waves), limits, allowed_failures(in_service, count)
    )


def roll_out(count: int, seed: int, in_service: str = "90%", **wrong: Any) -> Outcome:
    """Plans and commands until no node is left. in_service: the floor; wrong: functions in place of
    the machine's, for a test of the checker."""
    checker = LargeChecker()
    outcome = Outcome(checker, LargeFleet(count, random.Random(seed), checker))
    left = list(outcome.fleet.nodes)
    while left and outcome.plans < MOST_PLANS and not checker.faults:
        outcome.plans += 1
        plan = plan_of(outcome.fleet, left, in_service)
        case = RandomRollout(
            plan, outcome.fleet, Journal(reads_anew=False), run=f"plan{outcome.plans}", **wrong
        )
        checker.follow(case.run, case.plan)
        _carry_out(outcome, case)
        states = case.states()
        outcome.ends.append(Counter(node.state for node in states.values()))
        outcome.waves += len(case.plan.waves)
        outcome.journal_bytes += len(case.journal.content)
        left = [host for host, node in states.items() if node.state != RELEASED]
        outcome.fleet.bring_back(set(outcome.fleet.dead))
        outcome.fleet.repair(set(left))
    return outcome


def _carry_out(outcome: Outcome, case: RandomRollout) -> None:
    """One plan: the same command, until it has nothing left that a person could bring back."""
    fleet, goes_on = outcome.fleet, True
    while goes_on and outcome.commands < MOST_COMMANDS:
        outcome.commands += 1
        fleet.run = case.run
        for _part in controller(case):
            fleet.part()
        fleet.run = ""
        outcome.stops += bool(case.journal.read().stopped)
        goes_on = fleet.bring_back(
            {host for host, node in case.states().items() if node.state != RELEASED}
        )
