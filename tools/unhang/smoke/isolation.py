"""Finds the bad node in a group that failed: a pure scheduler. It yields rounds of disjoint groups
to try at the same time, and is sent the results.

    search = isolate(hosts, switches)          # the group as a whole has failed already
    groups = next(search)                      # [("a", "b"), ("c", "d")]; then search.send([True,
    False]), until StopIteration has the Isolation

The search begins with pairs: a node that fails with two different good partners is bad; a pair that
fails although both its nodes are good is a bad link. One bad node of 64 takes three rounds, two
take four, the last of them the proof that the rest passes. When all pairs pass and the group fails,
bisection shows whether it takes two switches (of the inventory's groups or variables), one link
that no pair had tried, or just so many nodes.

Faults are assumed to be permanent: a group that contains a failing group fails.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from unhang.core.smoke_result import Isolation

Group = tuple[str, ...]
Rounds = Generator[list[Group], list[bool], Isolation]
MOST_FINDINGS = 8
MOST_PAIR_ROUNDS = 64


@dataclass
class _Search:
    """The knowledge of the search so far."""

    hosts: list[str]
    switch: dict[str, str]
    good: set[str] = field(default_factory=set)
    bad: set[str] = field(default_factory=set)
    tried: dict[frozenset[str], bool] = field(default_factory=dict)
    links: list[tuple[str, str]] = field(default_factory=list)
    switches: list[tuple[str, str]] = field(default_factory=list)
    from_nodes: int | None = None
    rounds: int = 0

    @property
    def undecided(self) -> list[str]:
        return [host for host in self.hosts if host not in self.good and host not in self.bad]


def isolate(hosts: Sequence[str], switches: Mapping[str, str] | None = None) -> Rounds:
    """The search. switches: the switch of each host; hosts that are not named share one."""
    search = _Search(
        list(dict.fromkeys(hosts)), {host: (switches or {}).get(host, "") for host in hosts}
    )
    yield from _pair_up(search)
    for _ in range(MOST_FINDINGS):
        rest = _rest(search)
        if len(rest) < 2 or search.from_nodes:
            break
        # The remaining nodes pass, so all faults were found. If pairs found nothing, the fault has
        # gone away.
        if (yield from _ask(search, [tuple(rest)]))[0]:
            break
        yield from _bisect(search, rest)
    return _answer(search)


def _ask(search: _Search, groups: list[Group]) -> Generator[list[Group], list[bool], list[bool]]:
    passed = yield groups
    search.rounds += 1
    for group, well in zip(groups, passed, strict=True):
        if well:
            search.good.update(group)
        if len(group) == 2:
            search.tried[frozenset(group)] = well
    return passed


def _rest(search: _Search) -> list[str]:
    """The group without what was found: bad nodes, one end of each bad link, one switch of each bad
    pair of switches, in the order of switches."""
    away = {*search.bad, *(link[1] for link in search.links)}
    closed = {pair[1] for pair in search.switches}
    return [
        host
        for host in _by_switch(search)
        if host not in away and search.switch[host] not in closed
    ]


def _by_switch(search: _Search) -> list[str]:
    order = {
        switch: place
        for place, switch in enumerate(dict.fromkeys(search.switch[host] for host in search.hosts))
    }
    return sorted(search.hosts, key=lambda host: order[search.switch[host]])


def _answer(search: _Search) -> Isolation:
    failed = {host for pair, well in search.tried.items() if not well for host in pair}
    bad = tuple(host for host in search.hosts if host in search.bad)
    unresolved = tuple(host for host in search.undecided if host in failed)
    output = [f"bad node {node}" for node in bad]
    output += [
        f"bad link between {first} and {second}, each is good with others"
        for first, second in search.links
    ]
    output += [f"only across switch {first} and {second}" for first, second in search.switches]
    output += [f"only from {search.from_nodes} nodes on"] if search.from_nodes else []
    output += (
        [f"undecided: {', '.join(unresolved)}; add a node that is known to be good"]
        if unresolved
        else []
    )
    text = "; ".join(output) or "it did not happen again in parts of the group"
    return Isolation(
        search.rounds, text, bad, tuple(search.links), tuple(search.switches), search.from_nodes,
        unresolved,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------
# pairs


def _pair_up(search: _Search) -> Generator[list[Group], list[bool], None]:
    """Rounds of pairs until every node is known to be good or bad, or nothing more can be learnt
    from pairs."""
    pairs = _first_pairs(_by_switch(search))
    for _ in range(MOST_PAIR_ROUNDS):
        if not pairs:
            return
        yield from _ask(search, pairs)
        _conclude(search)
        pairs = _next_pairs(search)


def _first_pairs(hosts: Sequence[str]) -> list[Group]:
    """Neighbours in the order of switches: mostly below one switch, so that a fault between
    switches does not look like a node's."""
    return [(hosts[place], hosts[place + 1]) for place in range(0, len(hosts) - 1, 2)]


def _conclude(search: _Search) -> None:
    for host in search.hosts:
        if host in search.good or host in search.bad:
            continue
        refused_by = {
            partner
            for partner in search.good
            if search.tried.get(frozenset((host, partner))) is False
        }
        if len(refused_by) >= 2:
            search.bad.add(host)
    for pair, well in search.tried.items():
        link = (
            tuple(sorted(pair, key=search.hosts.index))
            if not well and pair <= search.good
            else None
        )
        if link and link not in search.links:
            search.links.append((link[0], link[1]))


def _next_pairs(search: _Search) -> list[Group]:
    """Every undecided node with a good one that it has not met, below its own switch if there is
    one; without good ones among themselves."""
    free = [host for host in _by_switch(search) if host in search.good]
    by_switch: dict[str, list[str]] = {}
    for host in free:
        by_switch.setdefault(search.switch[host], []).append(host)
    pairs: list[Group] = []
    alone: list[str] = []
    for host in search.undecided:
        partner = _partner(search, host, by_switch)
        if partner is None:
            alone.append(host)
        else:
            pairs.append((host, partner))
    while alone and not search.good:
        host = alone.pop(0)
        met = next((other for other in alone if frozenset((host, other)) not in search.tried), None)
        if met is not None:
            alone.remove(met)
            pairs.append((host, met))
    return pairs


def _partner(search: _Search, host: str, by_switch: Mapping[str, list[str]]) -> str | None:
    """Removes a good node from the lists and returns it: of the host's own switch, else of a switch
    in which it has not failed yet, else any."""
    failed_in = {
        search.switch[other]
        for pair, well in search.tried.items()
        if host in pair and not well
        for other in pair - {host}
    }
    own = search.switch[host]
    switches = sorted(by_switch, key=lambda switch: (switch != own, switch in failed_in))
    for switch in switches:
        for partner in by_switch[switch]:
            if frozenset((host, partner)) not in search.tried:
                by_switch[switch].remove(partner)
                return partner
    return None


# ------------------------------------------------------------------------------------------------
# bisection


def _bisect(search: _Search, rest: Sequence[str]) -> Generator[list[Group], list[bool], None]:
    """All of `rest` are good in pairs and fail together. Finds one reason."""
    each = [(host,) for host in rest]
    size = yield from _shortest(search, each, ())
    last = rest[size - 1]
    second = yield from _shortest(search, each[: size - 1], (last,))
    first = rest[second - 1]
    if second and size > 1 and not (yield from _passes(search, (first, last))):
        yield from _link_or_switches(search, first, last)
        return
    switches = yield from _two_switches(search, rest[:size])
    if switches:
        search.switches.append(switches)
    else:
        search.from_nodes = size


def _passes(search: _Search, group: Iterable[str]) -> Generator[list[Group], list[bool], bool]:
    members = tuple(group)
    known = search.tried.get(frozenset(members)) if len(members) == 2 else None
    if known is not None:
        return known
    if len(members) < 2:
        return True
    passed = yield from _ask(search, [members])
    return passed[0]


def _shortest(
    search: _Search, order: Sequence[Group], more: Group
) -> Generator[list[Group], list[bool], int]:
    """Number of the first groups of `order` that it takes to fail together with `more`; all of them
    are known to fail."""
    low, high = 0, len(order)
    while low + 1 < high:
        middle = (low + high) // 2
        if (yield from _passes(search, (*chain(*order[:middle]), *more))):
            low = middle
        else:
            high = middle
    return high


def _link_or_switches(
    search: _Search, first: str, last: str
) -> Generator[list[Group], list[bool], None]:
    """A pair of good nodes that fails: decides whether it is this link, or every link between their
    switches."""
    switch, other = search.switch[first], search.switch[last]
    mates, others = (
        [
            host
            for host in search.hosts
            if search.switch[host] == search.switch[end] and host not in (end, *search.bad)
        ]
        for end in (first, last)
    )
    if (
        switch != other
        and mates
        and others
        and not (yield from _passes(search, (mates[0], others[0])))
    ):
        search.switches.append((switch, other))
        # Pairs across the two were taken for bad links before; the switches explain them.
        search.links = [
            link
            for link in search.links
            if {search.switch[link[0]], search.switch[link[1]]} != {switch, other}
        ]
    else:
        search.links.append((first, last))


def _two_switches(
    search: _Search, failing: Sequence[str]
) -> Generator[list[Group], list[bool], tuple[str, str] | None]:
    """The two switches that it takes, when it is switches and not the number of nodes. failing: the
    shortest beginning that fails, in the order of switches."""
    switch = search.switch[failing[-1]]
    below: dict[str, Group] = {}
    for host in failing:
        below[search.switch[host]] = (*below.get(search.switch[host], ()), host)
    inside = below.pop(switch)
    if not below:
        return None
    count = yield from _shortest(search, [*below.values()], inside)
    other = [*below][count - 1]
    pair = [*below[other], *inside]
    # One node fewer than the number that would explain it, so that a failure can only be due to the
    # switches.
    if len(pair) == len(failing):
        pair = pair[1:]
    if (yield from _passes(search, pair)):
        return None
    return other, switch
