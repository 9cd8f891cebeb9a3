"""The state of all nodes of a rollout and the counts of the failure limit, updated entry by entry:
the cost of a step does not grow with the fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from unhang.act.rollout.floor import Floor, floor_of
from unhang.act.rollout.node_state import NodeState, follow, is_proved, is_resting
from unhang.act.rollout.steps import (
    BEGUN,
    DONE,
    FAILURE_LIMIT,
    FINAL,
    FLOOR,
    PUT_OFF,
    REBUILT,
    ROLLOUT,
    SOAK,
    Entry,
)


@dataclass(frozen=True)
class WaveCount:
    """Hosts of a wave. unproved: all hosts that are neither proved nor put off; ended: hosts
    without a further step by this controller. put_off: unchanged, and to be taken up again:
    deferred, waiting for jobs."""

    unproved: set[str]
    lost: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    put_off: set[str] = field(default_factory=set)


class RolloutState:
    """epoch: of the newest controller, which began with `begun`; ended: it has ended; stopped: why
    the failure limit stopped it; out: hosts out of service.

    closed: why nobody may go on with the rollout, None while somebody may. floor: the floor at the
    last answer of the scheduler; None if the plan has none, or the scheduler could not be queried.
    soak: the newest one after which nobody has been asked yet. is_lost: an earlier journal was
    lost, and no node has been asked yet what it has kept; rebuilt: the entry after that. nodes:
    states by host, of hosts that the journal names. The object changes with every entry: it belongs
    to one reader of one journal.
    """

    def __init__(
        self, waves: Sequence[Sequence[str]] = (), nodes: Iterable[NodeState] = (), epoch: int = 0
    ) -> None:
        self.epoch, self.ended = epoch, False
        self.closed: str | None = None
        self.begun: Entry | None = None
        self.stopped: str | None = None
        self.floor: Floor | None = None
        self.soak: Entry | None = None
        self.is_lost = False
        self.rebuilt: Entry | None = None
        self.waves = waves
        self.places = {
            host: (number, place)
            for number, hosts in enumerate(waves)
            for place, host in enumerate(hosts)
        }
        self.counts = [WaveCount(set(hosts)) for hosts in waves]
        self.nodes: dict[str, NodeState] = {}
        self.out: set[str] = set()
        for node in nodes:
            self._note(node)

    def node(self, host: str) -> NodeState:
        """The state of one node; a new one if the journal has no entry about it."""
        return self.nodes.get(host) or NodeState(host)

    def holds(self, host: str) -> bool:
        """Whether something of the rollout is on the node that is to be given back."""
        node = self.node(host)
        return node.touched and node.state not in FINAL

    def take(self, entries: Iterable[Entry]) -> RolloutState:
        """Adds these entries of the journal, in their order, and returns itself."""
        for entry in entries:
            if entry.host:
                self._note(follow(self.node(entry.host), entry, self.epoch))
            elif entry.step == ROLLOUT:
                self._of_rollout(entry)
            elif entry.step == FAILURE_LIMIT:
                self.stopped = None if entry.status == DONE else str(entry.evidence.get("why", ""))
            elif entry.step == REBUILT:
                self.is_lost, self.rebuilt = False, entry
            elif entry.step == SOAK:
                self.soak = entry if entry.status == BEGUN else None
            elif entry.step == FLOOR:
                self.floor = floor_of(entry.evidence)
                emptied = entry.evidence.get("emptied")
                listed = emptied if isinstance(emptied, list) else []
                for host in (one for one in self.reserved() if one in listed):
                    self._note(replace(self.node(host), reserved=False))
        return self

    def reserved(self) -> set[str]:
        """Hosts that were in service when the rollout last asked, for they ran a job until which
        its reservation waits. The scheduler's next list says which of them are out."""
        return {host for host, node in self.nodes.items() if node.reserved}

    def unproved(self, wave: int) -> list[str]:
        """Hosts of earlier waves that are not proved, and hosts of this wave (from 0) that have
        ended unproved, in the plan's order."""
        return self._in_order(host for count in self._up_to(wave, "unproved") for host in count)

    def lost(self, wave: int) -> list[str]:
        """Hosts of earlier waves that are changed and neither proved nor rolled back, and hosts of
        this wave that ended so, in the plan's order."""
        return self._in_order(host for count in self._up_to(wave, "lost") for host in count)

    def put_off(self, wave: int) -> list[str]:
        """Hosts of earlier waves that were put off, in the plan's order."""
        return self._in_order(host for count in self.counts[:wave] for host in count.put_off)

    def _of_rollout(self, entry: Entry) -> None:
        self.epoch, self.ended = entry.token, entry.status != BEGUN
        self.closed = str(entry.evidence.get("closed") or "") or self.closed
        if entry.status == BEGUN:
            self.is_lost = self.is_lost or bool(entry.evidence.get("lost"))
            self.begun, self.stopped, self.floor = entry, None, None
            for node in list(self.nodes.values()):
                self._note(node)  # what rested for the last controller, the new one takes up again

    def _note(self, node: NodeState) -> None:
        host, state = node.host, node.state
        self.nodes[host] = node
        _put(self.out, host, node.out_of_service)
        if host in self.places:
            count = self.counts[self.places[host][0]]
            _put(count.unproved, host, not is_proved(node) and state not in PUT_OFF)
            _put(count.lost, host, node.lost)
            _put(
                count.ended,
                host,
                is_resting(node) and (state in FINAL or node.changed or node.epoch == self.epoch),
            )
            _put(count.put_off, host, state in PUT_OFF)

    def _up_to(self, wave: int, kind: str) -> Iterator[set[str]]:
        yield from (hosts for count in self.counts[:wave] if (hosts := getattr(count, kind)))
        yield getattr(self.counts[wave], kind) & self.counts[wave].ended

    def _in_order(self, hosts: Iterable[str]) -> list[str]:
        return sorted(hosts, key=self.places.__getitem__)


def replay(entries: Iterable[Entry]) -> RolloutState:
    """The states of the nodes after a whole journal, without the waves."""
    return RolloutState().take(entries)


def _put(hosts: set[str], host: str, belongs: bool) -> None:
    if belongs:
        hosts.add(host)
    else:
        hosts.discard(host)
