"""Drives the rollout's state machine over the modelled nodes with random kills, faults and second controllers. No decision of a rollout is made here."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

from rollout_world import FAULTS, ROLLBACK_FAULTS, Node, World

from unhang.rollout import brake, machine
from unhang.rollout.floor import Service, floor_evidence, floor_left
from unhang.rollout.journal_text import JournalParser, last_epoch, parse_journal, render_entry
from unhang.rollout.node_state import NodeState
from unhang.rollout.standing import Standing, standing_of
from unhang.rollout.steps import BEGUN, BRAKE, DEFERRED, DONE, FAILED, FLOOR, ROLLOUT, STEPS, TOGETHER, Entry, Order, StepResult, Target

RUN = "20261120T070000Z-0123456789"
AT = "2026-11-20T07:00:00Z"
MOST_CONTROLLERS = 40


class Superseded(Exception):
    """Another controller has begun."""


class Killed(Exception):
    """In the middle of a line of the journal."""


@dataclasses.dataclass
class Journal:
    """The journal's bytes, as a disk has them."""

    content: bytes = b""
    newest: int = 0
    tears: random.Random | None = None
    known: Standing = dataclasses.field(default_factory=Standing)
    followed: JournalParser = dataclasses.field(default_factory=JournalParser)

    def of(self, waves: tuple[tuple[str, ...], ...]) -> None:
        """It is the journal of a plan with these waves."""
        self.known, self.followed = Standing(waves), JournalParser()

    def read(self) -> Standing:
        """As the action plugins do: what was read is known, and only what was appended since is read."""
        return self.known.take(self.followed.feed(self.content[self.followed.taken_bytes :]))

    def append(self, epoch: int, entry: Entry) -> None:
        if epoch != self.newest:
            raise Superseded
        new = render_entry(entry, self.content[self.content.rstrip(b"\n").rfind(b"\n") + 1 :] or b"\n")
        if self.tears is not None:
            self.content += new[: self.tears.randrange(len(new))]
            raise Killed
        self.content += new

    def begin(self) -> int:
        entries = parse_journal(self.content).entries
        followed, anew = self.read(), Standing(self.known.waves).take(entries)
        counted = standing_of(anew.waves, anew.nodes)
        if vars(anew) != vars(followed) or (counted.counts, counted.out) != (followed.counts, followed.out):
            raise AssertionError(f"expected what was followed to be what is read anew, found {vars(followed)} and {vars(anew)}")
        self.newest = max(self.newest, last_epoch(entries)) + 1
        self.append(self.newest, Entry(AT, "", ROLLOUT, BEGUN, self.newest))
        return self.newest


@dataclasses.dataclass(frozen=True)
class SimulatedPlan:
    """What is rolled out. floor: nodes that stay in service, of those of the waves and those beside them."""

    targets: dict[str, Target]
    waves: tuple[tuple[str, ...], ...]
    limits: brake.Limits
    floor: int = 0


@dataclasses.dataclass
class RandomRollout:
    """One random rollout. machine: the functions that decide; a test gives wrong ones."""

    plan: SimulatedPlan
    world: World
    journal: Journal
    rules: object = machine
    brake: object = brake
    floor: object = staticmethod(floor_left)
    finished_at: int = 0
    ended: dict[str, str] = dataclasses.field(default_factory=dict)
    faults_at_first: dict[str, frozenset[str]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.journal.of(self.plan.waves)
        self.faults_at_first = {host: frozenset(node.faults) for host, node in self.world.nodes.items()}

    def states(self) -> dict[str, NodeState]:
        """Each host as the journal has it."""
        standing = self.journal.read()
        return {host: standing.node(host) for host in self.plan.targets}


def controller(case: RandomRollout) -> Iterator[None]:
    """One run of the command: what the playbook does, step by step. A yield is where it may be killed, or stand still."""
    epoch = case.journal.begin()

    def put(entry: Entry) -> None:
        case.journal.append(epoch, entry)

    for number, _wave in enumerate(case.plan.waves):
        yield
        yield from keep_floor(case, put)
        admitted = case.brake.admit(case.journal.read(), number, case.plan.limits)
        put(Entry(AT, "", BRAKE, FAILED if admitted.stopped else DONE, epoch, {"wave": number, "why": admitted.stopped or ""}))
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
    put(Entry(AT, "", ROLLOUT, DONE, epoch))


def keep_floor(case: RandomRollout, put) -> Iterator[None]:
    """The scheduler is asked who is in service, where the plan has a floor; somebody may drain a node before the answer is written down."""
    if not case.plan.floor:
        return
    out = case.world.listed()
    yield
    service = Service(frozenset(case.world.fleet() - out.keys()), out)
    left = case.floor(service, case.journal.read().out, case.plan.floor)
    put(Entry(AT, "", FLOOR, DONE, case.journal.newest, floor_evidence(left)))


def play_step(case: RandomRollout, epoch: int, wave: int, admitted: brake.Admission, step: str, put) -> Iterator[None]:
    """One step over a batch: who needs it is asked, all begin, each answer is judged and written down."""
    standing = case.journal.read()
    against = {host: case.brake.why_not(standing, host, wave, case.plan.limits) for host in admitted.begin}
    asked = [case.rules.next_order(standing.node(host), case.plan.targets[host], epoch, why) for host, why in against.items()]
    orders = [order for order in asked if order is not None and order.step == step]
    for group in [orders] if step == TOGETHER and orders else [[order] for order in orders]:
        yield from play_orders(case, group, put)


def play_orders(case: RandomRollout, orders: list[Order], put) -> Iterator[None]:
    refused = {order.host: why for order in orders if (why := case.rules.may_act(order))}
    going = [order for order in orders if order.host not in refused]
    for order in orders:
        if order in going:
            put(Entry(AT, order.host, order.step, BEGUN, order.token, {"boot_id": order.boot_id}))
            case.world.note("ordered", order.host, order.step)
        yield
    results = {host: StepResult("failed", {"why": why}) for host, why in refused.items()}
    if going:
        for part in case.world.carry_out(going, RUN, case.plan.targets):
            results |= part
            yield
    for order in orders:
        status, evidence = case.rules.judge(order, results[order.host], case.plan.targets[order.host])
        put(Entry(AT, order.host, order.step, status, order.token, evidence))
        yield


def target_of(node: Node) -> Target:
    """As a plan has it: a reboot for the trial, and one for a driver, or for a kernel that is not tried first."""
    reboots = int(node.trial) + int(not node.trial or node.wants[1] != "d1")
    return Target(node.host, f"{node.host}-boot-1", reboots, {"kernel": node.wants[0], "driver": node.wants[1]})


def random_case(seed: int) -> RandomRollout:
    """A fleet with its waves, limits and faults."""
    dice = random.Random(seed)
    count = dice.randint(1, 8)
    bad = dice.choice((0.0, 0.1, 0.3, 0.6))
    nodes = []
    for number in range(count):
        faults = {dice.choice(FAULTS)} if dice.random() < bad else set()
        faults |= {dice.choice((*FAULTS, *ROLLBACK_FAULTS * 8))} if faults and dice.random() < 0.4 else set()
        node = Node(f"gpu{number:03}", faults, wants=dice.choice((("k1", "d2"), ("k2", "d1"), ("k2", "d2"))), trial=dice.random() < 0.5)
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
    limits = brake.Limits(dice.randint(0, 2), frozenset(hosts[:1]), (brake.Limit("all", frozenset(hosts), dice.randint(1, count + 1)),))
    service = random.Random(seed * 17 + 3)
    beside = {f"other{number:03}": service.random() < 0.4 for number in range(service.randint(0, 4))}
    fleet = count + len(beside)
    floor = service.choice((0, service.randint(1, fleet), max(1, fleet - 1 - sum(beside.values()))))
    return RandomRollout(SimulatedPlan(targets, tuple(waves), limits, floor), World(nodes, beside), Journal())


def simulate(case: RandomRollout, seed: int) -> RandomRollout:
    """Kills, second controllers, other runs and nodes that come back, until the command has come to its end undisturbed; then once more, in peace."""
    dice = random.Random(seed * 31 + 7)
    disturbed = dice.choice((0.0, 0.02, 0.1))
    alive, started = [controller(case)], 1
    while alive:
        one, roll = dice.choice(alive), dice.random() if started < MOST_CONTROLLERS else 1.0
        if roll < disturbed:
            kill(case, one, alive, dice)
            come_back(case.world, dice)
        elif roll < disturbed * 1.5 and len(alive) < 3:
            alive.append(controller(case))  # a second one; the first, cut off, knows nothing of it
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
    """One part further; it goes when it is done, or finds that another has taken its place."""
    try:
        next(one)
    except (StopIteration, Superseded, Killed):
        alive.remove(one)


def kill(case: RandomRollout, one: Iterator[None], alive: list[Iterator[None]], dice: random.Random) -> None:
    """SIGKILL, now and then in the middle of the next line of the journal."""
    if dice.random() < 0.3:
        case.journal.tears = dice
        advance(one, alive)
        case.journal.tears = None
    if one in alive:
        alive.remove(one)
    one.close()


def come_back(world: World, dice: random.Random) -> None:
    """Nodes that had vanished answer again, a scheduler is back, a disk has room."""
    for node in world.nodes.values():
        if not node.up and dice.random() < 0.7:
            node.up = True
            node.faults -= {fault for fault in node.faults if "vanish" in fault or fault == "does not boot"}
        if dice.random() < 0.3:
            node.faults -= {"scheduler gone", "scheduler gone at the end", "lock cannot be written", "apply hangs"}
