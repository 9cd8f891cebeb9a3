"""A month of a site: people who plan, begin, kill, end and undo rollouts, start second controllers,
and drain, hold, boot and repair nodes. No decision of a rollout is made here."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Iterator

from month_checker import MonthChecker
from month_fleet import HOUR_S, JOBS_EACH_S, Fleet
from rollout_simulation import Journal, Killed, RandomRollout, SimulatedPlan, Superseded, controller
from rollout_world import Node

from unhang.act.plan.waves import WaveLimits, plan_waves
from unhang.act.rollout.failure_limit import Limit, Limits
from unhang.act.rollout.node_state import NodeState
from unhang.act.rollout.steps import FINAL, KEPT, LOST, TAKEN_OVER, UNFINISHED, WAITING, Target

DAY_S = 24 * HOUR_S
FAULTS = (
    "apply fails", "apply vanishes", "apply hangs", "says ok and does nothing", "trial boot fails",
    "vanishes before its reboot", "vanishes during its reboot",
    "vanishes after its reboot", "does not boot", "wrong kernel", "wrong driver", "audit fails",
    "smoke fails", "smoke together fails", "fails under load", "nobody is named",
    "drain refused", "scheduler gone", "scheduler gone at the end", "rollback fails",
    "rollback says ok and does nothing", "rollback vanishes",
    "crashes in between", "lock cannot be written", "boots before its release",
    "boots before its apply",
)  # fmt: skip
MOST_AT_ONCE = 3
PARTS_A_SECOND = 1.0
FAULTY = 0.02  # share of a plan's nodes that have a fault of their own


@dataclasses.dataclass(frozen=True)
class Wish:
    """A plan's entry for one node: (kernel, driver) before and after, and whether the kernel is
    tried first."""

    was: tuple[str, str]
    wants: tuple[str, str]
    trial: bool = False


@dataclasses.dataclass
class Rollout(RandomRollout):
    """One plan of the month, and its commands. planned: the targets as planned; alive: its
    controllers; over: nobody goes on with it (ended or undone)."""

    planned: dict[str, Target] = dataclasses.field(default_factory=dict)
    began_s: float = 0.0
    undoes: Rollout | None = None
    alive: list[Iterator[None]] = dataclasses.field(default_factory=list)
    over: str = ""
    undone: set[str] = dataclasses.field(default_factory=set)
    wishes: dict[str, Wish] = dataclasses.field(default_factory=dict)

    def state_of(self) -> dict[str, str]:
        """{host: state} by the journal, as `unhang remediate` reads it between its looks."""
        return {host: node.state for host, node in self.states().items()}


class Month:
    """rules: decisions that a test replaces by wrong ones: machine, failure_limit and floor of a
    rollout."""

    def __init__(self, seed: int, rules: dict[str, object] | None = None) -> None:
        self.dice = random.Random(seed)
        self.checker = MonthChecker()
        self.rollouts: dict[str, Rollout] = {}
        self.fleet = Fleet(
            self.dice,
            self.checker.see,
            self._waits_since,
            lambda run, host: self.rollouts[run].wishes[host],
        )
        self.checker.nodes = self.fleet.nodes
        self.rules = rules or {}
        self.repeats = [
            (JOBS_EACH_S, self.fleet.start_jobs), (5 * HOUR_S, self.fleet.lose_power),
            (3 * HOUR_S, self.fleet.lose_ssh), (DAY_S, self.fleet.lose_scheduler),
            (2 * HOUR_S, self.fleet.mend), (HOUR_S, self.drain_a_node),
            (6 * HOUR_S, self.hold_a_node), (4 * HOUR_S, self.boot_a_node),
            (8 * HOUR_S, self.resume_a_node), (3 * HOUR_S, self.repair_a_node),
            (5 * HOUR_S, self.kill_a_controller), (6 * HOUR_S, self.second_controller),
            (2 * DAY_S, self.take_a_node), (20 * HOUR_S, self.plan),
        ]  # fmt: skip

    def play(self, days: float) -> None:
        """The days, then an end in which everything comes back and each rollout is completed or
        ended."""
        for mean_s, act in self.repeats:
            self.fleet.every(mean_s, act)
        self.fleet.start_jobs()
        self.plan()
        for day in range(int(days)):
            self.fleet.pass_until((day + 1) * DAY_S)
            self.checker.faults += [f"day {day}: {line}" for line in self.unnamed()]

    def _waits_since(self, run: str, host: str) -> str:
        return self.rollouts[run].journal.read().node(host).waits_since

    # Nodes.
    def a_node(self, having=lambda node: True) -> Node | None:
        """A random node of those, None if there is none."""
        found = [node for node in self.fleet.nodes.values() if having(node)]
        return self.dice.choice(found) if found else None

    def drain_a_node(self) -> None:
        """Somebody drains a node in service, and resumes it when he is done."""
        if node := self.a_node(self.fleet.is_in_service):
            self._drain(node, "ops")

    def hold_a_node(self) -> None:
        """Somebody adds his reason to a node that a rollout has drained."""
        if node := self.a_node(lambda node: (node.drained_by or "").startswith("unhang ")):
            self._drain(node, "ops keeps it")

    def _drain(self, node: Node, who: str) -> None:
        node.drained_by = who
        self.fleet.note("drained by somebody else", node.host)
        self.fleet.after(self.dice.expovariate(1 / (10 * HOUR_S)), lambda: self._resume(node, who))

    def _resume(self, node: Node, who: str) -> None:
        if node.drained_by == who:
            node.drained_by = None
            self.fleet.note("resumed by somebody else", node.host)

    def resume_a_node(self) -> None:
        """Somebody ends a drain of a rollout without asking, and jobs come."""
        if node := self.a_node(
            lambda node: (node.drained_by or "").startswith("unhang ") and node.up
        ):
            self._resume(node, node.drained_by)
            self.fleet.start_jobs()

    def boot_a_node(self) -> None:
        """Somebody boots a node that has no job."""
        if node := self.a_node(lambda node: node.up and not node.jobs):
            self.fleet._boots(node, "by hand")

    def take_a_node(self) -> None:
        """Another run takes over the lock of a rollout, and has done its work after a while."""
        if node := self.a_node(lambda node: node.up and node.holder in self.rollouts):
            node.holder, node.token = "elsewhere", node.token + 1
            self.fleet.note("taken over", node.host)
            self.fleet.after(self.dice.uniform(1, 5) * HOUR_S, lambda: self._give_back(node))

    def _give_back(self, node: Node) -> None:
        if node.holder == "elsewhere":
            node.holder = None
            self.fleet.note("unlock", node.host)
        self.repair(node)

    def repair_a_node(self) -> None:
        """Somebody looks after a node that a rollout has left to a person."""
        left = {
            host
            for one in self.rollouts.values()
            if not one.alive
            for host, state in one.state_of().items()
            if state in (KEPT, LOST)
        }
        if node := self.a_node(
            lambda node: node.host in left and (node.drained_by or "").startswith("unhang ")
        ):
            self.repair(node)

    def repair(self, node: Node) -> None:
        """As it was before the rollout, and in service."""
        node.installed = node.running = node.was
        node.faults.clear()
        node.up, node.trial_done = True, False
        self.fleet.note("repaired", node.host)
        if (node.drained_by or "").startswith("unhang "):
            self._resume(node, node.drained_by)

    # Rollouts.
    def plan(self) -> None:
        """A new plan for a partition, some racks or the whole fleet, applied at once."""
        if len([one for one in self.rollouts.values() if not one.over]) >= MOST_AT_ONCE:
            return
        group = self.dice.choice(
            ["train", "infer", "debug", "short", f"rack{self.dice.randrange(40):02}"]
        )
        nodes = [
            node
            for host in sorted(self.fleet.groups[group])
            if (node := self.fleet.nodes[host]).up and node.installed == node.running
        ]
        for node in nodes:
            node.faults |= {self.dice.choice(FAULTS)} if self.dice.random() < FAULTY else set()
        self._begin(f"r{len(self.rollouts)}", {node.host: self._wish(node) for node in nodes})

    def _wish(self, node: Node) -> Wish:
        """Another driver, another kernel, or both."""
        kernel, number = self.dice.random() < 0.3, self.fleet.count
        both = kernel and self.dice.random() < 0.5
        wants = (
            f"k{number}" if kernel else node.running[0],
            node.running[1] if kernel and not both else f"d{number}",
        )
        return Wish(node.running, wants, kernel and self.dice.random() < 0.7)

    def _target(self, host: str, wish: Wish, is_undo: bool) -> Target:
        needed = (
            2 if is_undo else int(wish.trial) + int(not wish.trial or wish.wants[1] != wish.was[1])
        )
        running = {"kernel": wish.wants[0], "driver": wish.wants[1]}
        return Target(host, None if is_undo else self.fleet.nodes[host].boot_id, needed, running)

    def _begin(self, run: str, wishes: dict[str, Wish], undoes: Rollout | None = None) -> None:
        targets = {
            host: self._target(host, wish, undoes is not None) for host, wish in wishes.items()
        }
        most = self.dice.randint(2, 30)
        racks = [
            Limit(name, hosts, self.dice.randint(1, 4))
            for name, hosts in self.fleet.groups.items()
            if name.startswith("rack")
        ]
        kinds = {host: "h200" if int(host[3:]) % 10 else "a100" for host in targets}
        nodes = [self.fleet.nodes[host] for host in targets]
        limited = tuple((one.out_of_service, frozenset(one.hosts)) for one in racks)
        busy = frozenset(node.host for node in nodes if node.jobs)
        waves = plan_waves(kinds, WaveLimits(most, limited, busy))
        canaries = frozenset(host for wave in waves if wave.is_canary for host in wave.hosts)
        limits = Limits(
            self.dice.choice((0, 1, 5, 20)),
            canaries,
            (Limit("the fleet", frozenset(targets), most), *racks),
        )
        plan = SimulatedPlan(
            dict(targets),
            tuple(wave.hosts for wave in waves),
            limits,
            self.dice.choice((0, 900, 950, 970)),
        )
        one = Rollout(
            plan,
            self.fleet,
            Journal(reads_anew=False),
            **self.rules,
            run=run,
            planned=dict(targets),
            began_s=self.fleet.now_s,
            undoes=undoes,
            wishes=wishes,
        )  # type: ignore[arg-type]
        self.rollouts[run], self.checker.plans[run] = one, plan
        self.command(one)

    def command(self, one: Rollout, takes_over: bool = False, ending: str = "") -> None:
        """`unhang remediate --apply`, or --end; refused while another controller of the rollout, or
        of that which it undoes, may be at work."""
        others = [*one.alive, *(one.undoes.alive if one.undoes else [])]
        if one.over or (others and not takes_over):
            return
        one.ending = ending
        self._judge_plan(one)
        running = controller(one)
        one.alive.append(running)
        self._go_on(one, running, ending)

    def _judge_plan(self, one: Rollout) -> None:
        """Refuses untouched nodes whose plan is no longer valid, as the audit before each command
        does."""
        for host, target in one.planned.items():
            node, known = self.fleet.nodes[host], one.journal.read().node(host)
            old = (
                self.fleet.now_s - one.began_s > DAY_S
                or (target.boot_id is not None and node.boot_id != target.boot_id)
                or node.installed != one.wishes[host].was
            )
            why = (
                "it has changed since the plan"
                if old and not known.changed and not one.undoes
                else None
            )
            one.plan.targets[host] = dataclasses.replace(target, refused=why)

    def _go_on(self, one: Rollout, running: Iterator[None], ending: str) -> None:
        """One part of a controller, and the next one later."""
        if running not in one.alive:
            return
        one.at, self.fleet.run = self.fleet.clock(), one.run
        try:
            next(running)
        except (StopIteration, Superseded, Killed) as end:
            one.alive.remove(running)
            if isinstance(end, StopIteration):
                self._ended(one, ending)
            return
        finally:
            self.fleet.run = ""
        self.fleet.after(
            self.dice.expovariate(PARTS_A_SECOND), lambda: self._go_on(one, running, ending)
        )

    def _ended(self, one: Rollout, ending: str) -> None:
        """What the timer does next, or the person who typed the command."""
        after = one.state_of()
        if ending:
            one.over = ending
        elif WAITING in after.values():  # the timer
            self.fleet.after(HOUR_S / 2, lambda: self.command(one))
        elif all(state in FINAL for state in after.values()):
            one.over = "complete"
            if self.dice.random() < 0.25:
                self.fleet.after(self.dice.uniform(1, 20) * HOUR_S, lambda: self.undo(one))
        else:
            self.fleet.after(self.dice.expovariate(1 / (4 * HOUR_S)), lambda: self._decide(one))

    def _decide(self, one: Rollout) -> None:
        roll = self.dice.random()
        if roll < 0.5:
            self.command(one)
        elif roll < 0.8:
            self.command(one, ending="ended by ops")
        elif roll < 0.9:
            self.undo(one)
        else:
            self.fleet.after(DAY_S, lambda: self._decide(one))

    def undo(self, one: Rollout) -> None:
        """`unhang remediate --undo`: brings the changed nodes back that nothing has brought back
        since. A rollout that was undone does not go on."""
        known = one.states()
        if one.alive or one.undoes:
            return
        if not one.journal.read().closed and any(
            node.touched and not node.changed and node.state not in FINAL for node in known.values()
        ):
            self.command(one, ending="ended by ops, to be undone")  # an undo is refused before
            return
        hosts = [host for host, node in known.items() if self._is_as_it_left(one, node)]
        one.undone |= set(hosts)
        one.over = one.over or "undone"
        if hosts:
            self._begin(
                f"{one.run}-undo{len(self.rollouts)}",
                {host: Wish(one.wishes[host].wants, one.wishes[host].was) for host in hosts},
                one,
            )

    def _is_as_it_left(self, one: Rollout, node: NodeState) -> bool:
        if (
            not node.changed
            or node.as_before
            or node.state == TAKEN_OVER
            or node.host in one.undone
        ):
            return False
        return self.fleet.planned_by.get(node.host) == one.run

    def kill_a_controller(self) -> None:
        """SIGKILL, now and then in the middle of a line; somebody types the same command again."""
        busy = [one for one in self.rollouts.values() if one.alive]
        if not busy:
            return
        one = self.dice.choice(busy)
        victim = one.alive.pop()
        if self.dice.random() < 0.3:
            one.journal.tears = self.dice
            one.at, self.fleet.run = self.fleet.clock(), one.run
            with contextlib.suppress(StopIteration, Superseded, Killed):
                next(victim)
            one.journal.tears, self.fleet.run = None, ""
        victim.close()
        self.fleet.after(self.dice.expovariate(1 / (2 * HOUR_S)), lambda: self.command(one))

    def second_controller(self) -> None:
        """Somebody declares a controller dead that lives."""
        busy = [one for one in self.rollouts.values() if one.alive]
        if busy:
            self.command(self.dice.choice(busy), takes_over=True)

    # What no node may be.
    def unnamed(self) -> list[str]:
        """Nodes with a lock or a drain of a rollout whose journal does not know it."""
        found = []
        for node in self.fleet.nodes.values():
            for run, what in (
                (node.holder, "locked"),
                ((node.drained_by or "").removeprefix("unhang "), "drained"),
            ):
                known = (
                    self.rollouts[run].journal.read().node(node.host)
                    if run in self.rollouts
                    else None
                )
                if known is not None and not known.touched and known.state not in (KEPT, LOST):
                    found.append(
                        f"{node.host} is {what} by {run}, whose journal has it {known.state}"
                    )
        return found

    def finish(self) -> list[str]:
        """Everything answers again, and each rollout is completed, or ended. Gives the nodes that
        are then forgotten."""
        self.fleet.closing = True
        self.fleet.pass_until(self.fleet.now_s + 4 * DAY_S)
        self.fleet.scheduler_is_away = False
        for node in self.fleet.nodes.values():
            node.up = True
            node.faults.clear()
        for ending in ("", "ended by ops", "ended by ops"):
            for one in list(self.rollouts.values()):
                one.over = "" if ending and one.over != "undone" else one.over
                self.command(one, takes_over=True, ending=ending)
                self.fleet.pass_until(self.fleet.now_s + DAY_S)
        return [
            *self.unnamed(),
            *(line for one in self.rollouts.values() for line in self._forgotten(one)),
        ]

    def _forgotten(self, one: Rollout) -> list[str]:
        """Nodes that the rollout has touched, and that are neither released nor kept with a
        reason."""
        found = []
        for host, known in one.states().items():
            node = self.fleet.nodes[host]
            locked, drained = node.holder == one.run, node.drained_by == f"unhang {one.run}"
            # Nobody goes on with an undone rollout, also to unlock what did not answer when it was
            # ended: that lock expires by itself after four hours, which have no part here.
            left = one.over == "undone" and known.state == UNFINISHED and not drained
            if (locked and not left) or (
                drained and not (known.state in (KEPT, LOST) and known.why)
            ):
                found.append(
                    f"{host} ended {known.state} ({known.why}) in {one.run} ({one.over}), locked"
                    f" {locked}, drained {drained}"
                )
        return found
