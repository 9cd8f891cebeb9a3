"""Drives the rollout's state machine over the modelled nodes with random kills, faults and second
controllers. It makes no decision of a rollout."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from types import SimpleNamespace

from rollout_world import DIES, FAULTS, ROLLBACK_FAULTS, Node, World
from standing_rollouts import standing_of

from unhang.act.plan.plan_document import Wave
from unhang.act.rollout import failure_limit, state_machine
from unhang.act.rollout.floor import Service, floor_evidence, floor_left
from unhang.act.rollout.journal_text import (
    LONGEST_LINE_BYTES,
    JournalParser,
    last_epoch,
    parse_journal,
    render_entry,
)
from unhang.act.rollout.node_state import NodeState
from unhang.act.rollout.rollout_state import RolloutState
from unhang.act.rollout.soak import fallen, soaking_before
from unhang.act.rollout.steps import (
    BEGUN,
    DEFERRED,
    DONE,
    FAILED,
    FAILURE_LIMIT,
    FLOOR,
    ROLLOUT,
    SOAK,
    STEPS,
    TOGETHER,
    Entry,
    Order,
    StepResult,
    Target,
)

RUN = "20261120T070000Z-0123456789"
AT = "2026-11-20T07:00:00Z"
MOST_CONTROLLERS = 40


class Superseded(Exception):
    """Another controller has started."""


class Killed(Exception):
    """The controller was killed in the middle of a line of the journal."""


@dataclasses.dataclass
class Journal:
    """The bytes of the journal, as on a disk. Each controller reads it from its beginning, and what
    was followed must be the same."""

    content: bytearray = dataclasses.field(default_factory=bytearray)
    newest: int = 0
    tears: random.Random | None = None
    known: RolloutState = dataclasses.field(default_factory=RolloutState)
    followed: JournalParser = dataclasses.field(default_factory=JournalParser)

    def of(self, waves: tuple[tuple[str, ...], ...]) -> None:
        """Makes it the journal of a plan with these waves."""
        self.known, self.followed = RolloutState(waves), JournalParser()

    def read(self) -> RolloutState:
        """Reads like the action plugins: keeps what was read before, and reads only what was
        appended since."""
        return self.known.take(self.followed.feed(self.content[self.followed.taken_bytes :]))

    def append(self, epoch: int, entry: Entry) -> None:
        if epoch != self.newest:
            raise Superseded
        tail = self.content[-LONGEST_LINE_BYTES:]
        new = render_entry(entry, tail[tail.rstrip(b"\n").rfind(b"\n") + 1 :] or b"\n")
        if self.tears is not None:
            self.content += new[: self.tears.randrange(len(new))]
            raise Killed
        self.content += new

    def begin(self) -> int:
        entries = parse_journal(self.content).entries
        followed, anew = self.read(), RolloutState(self.known.waves).take(entries)
        counted = standing_of(anew.waves, anew.nodes, anew.epoch)
        if vars(anew) != vars(followed) or (counted.counts, counted.out) != (
            followed.counts,
            followed.out,
        ):
            raise AssertionError(
                f"expected what was followed to be what is read anew, found {vars(followed)} and"
                f" {vars(anew)}"
            )
        self.newest = max(self.newest, last_epoch(entries)) + 1
        self.append(self.newest, Entry(AT, "", ROLLOUT, BEGUN, self.newest))
        return self.newest


@dataclasses.dataclass(frozen=True)
class SimulatedPlan:
    """The input of a rollout. floor: number of nodes that stay in service, among those of the waves
    and the others of the fleet."""

    targets: dict[str, Target]
    waves: tuple[tuple[str, ...], ...]
    limits: failure_limit.Limits
    floor: int = 0
    soak_s: int = 0

    def named(self):
        """The waves with their names, as a plan on disk has them."""
        return SimpleNamespace(
            waves=[
                Wave(f"wave {at}" if at else "canary 1", hosts)
                for at, hosts in enumerate(self.waves)
            ]
        )


@dataclasses.dataclass
class RandomRollout:
    """One random rollout. rules, failure_limit, floor: the functions that decide; a test passes
    wrong ones."""

    plan: SimulatedPlan
    world: World
    journal: Journal
    rules: object = state_machine
    failure_limit: object = failure_limit
    floor: object = staticmethod(floor_left)
    soaking: object = staticmethod(soaking_before)
    finished_at: int = 0
    ended: dict[str, str] = dataclasses.field(default_factory=dict)
    faults_at_first: dict[str, frozenset[str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.journal.of(self.plan.waves)
        self.faults_at_first = {
            host: frozenset(node.faults) for host, node in self.world.nodes.items()
        }

    def states(self) -> dict[str, NodeState]:
        """Each host's state by the journal."""
        standing = self.journal.read()
        return {host: standing.node(host) for host in self.plan.targets}


def controller(case: RandomRollout) -> Iterator[None]:
    """One run of the command: the work of the playbook, step by step. At each yield it may be
    killed or paused."""
    epoch = case.journal.begin()

    def put(entry: Entry) -> None:
        case.journal.append(epoch, entry)

    yield from look_back(case, fallen(case.journal.read(), case.plan.waves), "", put)
    for number, _wave in enumerate(case.plan.waves):
        yield
        yield from soak_before(case, number, put)
        yield from keep_floor(case, put)
        admitted = case.failure_limit.admit(case.journal.read(), number, case.plan.limits)
        put(
            Entry(
                AT,
                "",
                FAILURE_LIMIT,
                FAILED if admitted.stopped else DONE,
                epoch,
                {"wave": number, "why": admitted.stopped or ""},
            )
        )
        for host, why in admitted.postponed.items():
            if host not in admitted.begin:
                put(Entry(AT, host, "lock", DEFERRED, 0, {"why": why}))
        for host in admitted.begin:
            why = case.rules.refusal(case.journal.read().node(host), case.plan.targets[host])
            if why:
                put(Entry(AT, host, "lock", FAILED, 0, {"why": why}))
        for step in STEPS:
            if step == "drain":
                yield from keep_floor(case, put)
            yield from play_step(case, epoch, number, admitted, step, put)
    yield from soak_before(case, len(case.plan.waves), put)
    put(Entry(AT, "", ROLLOUT, DONE, epoch))


def soak_before(case: RandomRollout, wave: int, put) -> Iterator[None]:
    """The soak before a wave, or at the end; the controller may be killed while it waits."""
    soaking = case.soaking(case.journal.read(), case.plan.named(), case.plan.soak_s, wave)
    if soaking is None:
        return
    put(
        Entry(
            AT,
            "",
            SOAK,
            BEGUN,
            case.journal.newest,
            {"until": soaking.until, "hosts": list(soaking.hosts)},
        )
    )
    yield
    yield from look_back(case, soaking.hosts, soaking.until, put)
    put(Entry(AT, "", SOAK, DONE, case.journal.newest, {"until": soaking.until}))


def look_back(case: RandomRollout, hosts, until: str, put) -> Iterator[None]:
    """Asks released nodes again: the boot, and whether they take jobs."""
    for host in hosts:
        node, known = case.world.nodes[host], case.journal.read().node(host)
        well = node.up and node.boot_id == known.boot_id and node.drained_by is None
        put(
            Entry(
                AT,
                host,
                SOAK,
                DONE if well else FAILED,
                0,
                {"until": until} | ({} if well else {"why": "it has booted, or is out of service"}),
            )
        )
        yield


def keep_floor(case: RandomRollout, put) -> Iterator[None]:
    """Asks the scheduler which nodes are in service, where the plan has a floor; another user may
    drain a node before the answer is recorded."""
    if not case.plan.floor:
        return
    out = case.world.listed()
    yield
    ours = case.journal.read().out
    left = case.floor(
        Service(frozenset(case.world.fleet() - out.keys()), out), ours, case.plan.floor
    )
    put(Entry(AT, "", FLOOR, DONE, case.journal.newest, floor_evidence(left)))


def play_step(
    case: RandomRollout,
    epoch: int,
    wave: int,
    admitted: failure_limit.Admission,
    step: str,
    put,
) -> Iterator[None]:
    """One step over a batch: finds the nodes that need it, begins all of them, then judges and
    records each answer."""
    standing = case.journal.read()
    against = {
        host: case.failure_limit.why_not(standing, host, wave, case.plan.limits)
        for host in admitted.begin
    }
    asked = [
        case.rules.next_order(standing.node(host), case.plan.targets[host], epoch, why)
        for host, why in against.items()
    ]
    orders = [order for order in asked if order is not None and order.step == step]
    for group in [orders] if step == TOGETHER and orders else [[order] for order in orders]:
        yield from play_orders(case, group, put)


def play_orders(case: RandomRollout, orders: list[Order], put) -> Iterator[None]:
    refused = {order.host: why for order in orders if (why := case.rules.may_act(order))}
    going = [order for order in orders if order.host not in refused]
    for order in orders:
        if order in going:
            put(
                Entry(
                    AT,
                    order.host,
                    order.step,
                    BEGUN,
                    order.token,
                    {"boot_id": order.boot_id, "why": order.why},
                )
            )
            case.world.note("ordered", order.host, order.step)
        yield
    results = {host: StepResult("failed", {"why": why}) for host, why in refused.items()}
    if going:
        for part in case.world.carry_out(going, RUN, case.plan.targets):
            results |= part
            yield
    for order in orders:
        status, evidence = case.rules.judge(
            order, results[order.host], case.plan.targets[order.host]
        )
        put(Entry(AT, order.host, order.step, status, order.token, evidence))
        yield


def target_of(node: Node) -> Target:
    """The plan's number of reboots: one for the trial, and one for a driver, or for a kernel that
    is not tried first."""
    reboots = int(node.trial) + int(not node.trial or node.wants[1] != node.was[1])
    return Target(
        node.host,
        f"{node.host}-boot-1",
        reboots,
        {"kernel": node.wants[0], "driver": node.wants[1]},
    )


def random_case(seed: int) -> RandomRollout:
    """A fleet with its waves, limits and faults."""
    dice = random.Random(seed)
    count = dice.randint(1, 8)
    bad = dice.choice((0.0, 0.1, 0.3, 0.6))
    nodes = []
    for number in range(count):
        faults = {dice.choice(FAULTS)} if dice.random() < bad else set()
        faults |= (
            {dice.choice((*FAULTS, *ROLLBACK_FAULTS * 8))}
            if faults and dice.random() < 0.4
            else set()
        )
        node = Node(
            f"gpu{number:03}",
            faults,
            wants=dice.choice((("k1", "d2"), ("k2", "d1"), ("k2", "d2"))),
            trial=dice.random() < 0.5,
        )
        node.trial = node.trial and node.wants[0] == "k2"
        node.jobs = ["job"] if dice.random() < 0.5 else []
        nodes.append(node)
    targets = {node.host: target_of(node) for node in nodes}
    hosts = [node.host for node in nodes]
    waves = [tuple(hosts[:1])]
    rest = hosts[1:]
    while rest:
        size = dice.randint(1, 4)
        waves.append(tuple(rest[:size]))
        rest = rest[size:]
    limits = failure_limit.Limits(
        dice.randint(0, 2),
        frozenset(hosts[:1]),
        (failure_limit.Limit("all", frozenset(hosts), dice.randint(1, count + 1)),),
    )
    service = random.Random(seed * 17 + 3)
    beside = {
        f"other{number:03}": service.random() < 0.4 for number in range(service.randint(0, 4))
    }
    fleet = count + len(beside)
    floor = service.choice((0, service.randint(1, fleet), max(1, fleet - 1 - sum(beside.values()))))
    soaks = random.Random(seed * 13 + 5)
    soak_s = 600 if soaks.random() < 0.5 else 0
    for node in nodes if soak_s else ():
        node.faults |= {DIES} if soaks.random() < 0.2 else set()
    return RandomRollout(
        SimulatedPlan(targets, tuple(waves), limits, floor, soak_s), World(nodes, beside), Journal()
    )


def simulate(case: RandomRollout, seed: int) -> RandomRollout:
    """Kills, second controllers, other runs and nodes that return, until the command has finished
    undisturbed; then once more without disturbance."""
    dice = random.Random(seed * 31 + 7)
    disturbed = dice.choice((0.0, 0.02, 0.1))
    alive, started = [controller(case)], 1
    while alive:
        one, roll = dice.choice(alive), dice.random() if started < MOST_CONTROLLERS else 1.0
        if roll < disturbed:
            kill(case, one, alive, dice)
            come_back(case.world, dice)
        elif roll < disturbed * 1.5 and len(alive) < 3:
            # a second one; the first, which is cut off, does not know about it
            alive.append(controller(case))
            started += 1
        elif roll < disturbed * 1.6:
            case.world.take_over(dice)
        elif roll < disturbed * 2.2:
            case.world.drained_by_others(dice)
        else:
            advance(one, alive)
        if not alive and not case.journal.read().ended:
            alive.append(controller(case))
            started += 1
    case.finished_at = len(case.world.log)
    case.ended = {host: node.state for host, node in case.states().items()}
    for _part in controller(case):
        pass
    return case


def advance(one: Iterator[None], alive: list[Iterator[None]]) -> None:
    """Runs one part further; removes the controller when it has finished, or finds that another has
    replaced it."""
    try:
        next(one)
    except (StopIteration, Superseded, Killed):
        alive.remove(one)


def kill(
    case: RandomRollout, one: Iterator[None], alive: list[Iterator[None]], dice: random.Random
) -> None:
    """SIGKILL, sometimes in the middle of the next line of the journal."""
    if dice.random() < 0.3:
        case.journal.tears = dice
        advance(one, alive)
        case.journal.tears = None
    if one in alive:
        alive.remove(one)
    one.close()


def come_back(world: World, dice: random.Random) -> None:
    """Nodes that had vanished answer again, a scheduler is back, a disk has free space."""
    for node in world.nodes.values():
        if not node.up and dice.random() < 0.7:
            node.up = True
            node.faults -= {
                fault for fault in node.faults if "vanish" in fault or fault == "does not boot"
            }
        if dice.random() < 0.3:
            node.faults -= {
                "scheduler gone",
                "scheduler gone at the end",
                "lock cannot be written",
                "apply hangs",
            }
