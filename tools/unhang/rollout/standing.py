"""Where all nodes of a rollout stand, followed entry after entry. What the brake counts is kept up to date, so that a step costs no more in a large fleet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from unhang.rollout.floor import Floor, floor_of
from unhang.rollout.node_state import NodeState, follow, is_proved, is_resting
from unhang.rollout.steps import BEGUN, BRAKE, DONE, FLOOR, POSTPONED, ROLLOUT, Entry


@dataclass(frozen=True)
class WaveCount:
    """Hosts of a wave. unproved: all but those that are proved or put off, whether or not anything is known of them; ended: nothing more is asked of them.

    put_off: for too many others are out of service.
    """

    unproved: set[str]
    lost: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    put_off: set[str] = field(default_factory=set)


class Standing:
    """epoch: of the newest controller, which began with `begun`; ended: it came to its end; stopped: what the brake said last; out: hosts out of service.

    floor: what the floor left when the scheduler was asked last; None where the plan has none, or nobody could be asked.

    nodes: by host, of those that the journal names. Changes with every entry that it takes: it belongs to one reader of one journal.
    """

    def __init__(self, waves: Sequence[Sequence[str]] = (), nodes: Iterable[NodeState] = ()) -> None:
        self.epoch, self.ended = 0, False
        self.begun: Entry | None = None
        self.stopped: str | None = None
        self.floor: Floor | None = None
        self.waves = waves
        self.places = {host: (number, place) for number, hosts in enumerate(waves) for place, host in enumerate(hosts)}
        self.counts = [WaveCount(set(hosts)) for hosts in waves]
        self.nodes: dict[str, NodeState] = {}
        self.out: set[str] = set()
        for node in nodes:
            self._note(node)

    def node(self, host: str) -> NodeState:
        """One node; a new one when nothing was written about it."""
        return self.nodes.get(host) or NodeState(host)

    def take(self, entries: Iterable[Entry]) -> Standing:
        """Itself, after these entries of the journal, in their order."""
        for entry in entries:
            if entry.host:
                self._note(follow(self.node(entry.host), entry, self.epoch))
            elif entry.step == ROLLOUT:
                self._of_rollout(entry)
            elif entry.step == BRAKE:
                self.stopped = None if entry.status == DONE else str(entry.evidence.get("why", ""))
            elif entry.step == FLOOR:
                self.floor = floor_of(entry.evidence)
        return self

    def unproved(self, wave: int) -> list[str]:
        """Those of earlier waves that are not proved, and those of this one (from 0) that have ended without, in the plan's order."""
        return self._in_order(host for count in self._up_to(wave, "unproved") for host in count)

    def lost(self, wave: int) -> list[str]:
        """Those of earlier waves that were not brought back, and those of this one that ended so, in the plan's order."""
        return self._in_order(host for count in self._up_to(wave, "lost") for host in count)

    def put_off(self, wave: int) -> list[str]:
        """Those of earlier waves that were put off, in the plan's order."""
        return self._in_order(host for count in self.counts[:wave] for host in count.put_off)

    def _of_rollout(self, entry: Entry) -> None:
        self.epoch, self.ended = entry.token, entry.status != BEGUN
        if entry.status == BEGUN:
            self.begun, self.stopped, self.floor = entry, None, None

    def _note(self, node: NodeState) -> None:
        host, state = node.host, node.state
        self.nodes[host] = node
        _put(self.out, host, node.out_of_service)
        if host in self.places:
            count = self.counts[self.places[host][0]]
            _put(count.unproved, host, not is_proved(node) and state != POSTPONED)
            _put(count.lost, host, node.lost)
            _put(count.ended, host, is_resting(node))
            _put(count.put_off, host, state == POSTPONED)

    def _up_to(self, wave: int, kind: str) -> Iterator[set[str]]:
        yield from (hosts for count in self.counts[:wave] if (hosts := getattr(count, kind)))
        yield getattr(self.counts[wave], kind) & self.counts[wave].ended

    def _in_order(self, hosts: Iterable[str]) -> list[str]:
        return sorted(hosts, key=self.places.__getitem__)


def replay(entries: Iterable[Entry]) -> Standing:
    """Where the nodes stand by a whole journal, without the waves."""
    return Standing().take(entries)


def standing_of(waves: Sequence[Sequence[str]], nodes: Mapping[str, NodeState]) -> Standing:
    """Where they stand when each node is in this state."""
    return Standing(waves, nodes.values())


def _put(hosts: set[str], host: str, belongs: bool) -> None:
    if belongs:
        hosts.add(host)
    else:
        hosts.discard(host)
