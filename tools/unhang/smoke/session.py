"""A session of the smoke test over several nodes: the group, then experiments, then the search for
the bad node.

A generator, so that one plan serves every launcher: it yields a Round of groups to be started at
the same time and is sent its RoundResult; it returns the result. `follow` drives it where nodes are
reached from here; the playbook has no process for the whole run, so it provides outcomes in a
folder, and the session is replayed from its start. Judging may therefore depend on that folder
alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import msgspec

from unhang.core.smoke_result import Isolation, SmokeResult
from unhang.core.verdict.suspect import Suspect
from unhang.smoke.bandwidth import paces, stragglers
from unhang.smoke.expectations import NOTHING_KNOWN, Expectations
from unhang.smoke.experiments import (
    Experiment,
    experiment_rounds,
    narrowed,
    plan_experiments,
    worth_trying,
)
from unhang.smoke.group import (
    Ready,
    SessionOptions,
    Surveys,
    find_members,
    meeting_row,
    plan_members,
    prepare,
)
from unhang.smoke.isolation import Group, isolate
from unhang.smoke.node_plans import NodePlan, Request
from unhang.smoke.rendezvous import other_interfaces
from unhang.smoke.result import judge
from unhang.smoke.streams import Stream, stories

FEWEST_TO_ISOLATE = 3
PAIR_LIMIT_S = 90.0
PAIR_RENDEZVOUS_S = 25.0
NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Round:
    """Disjoint groups to be started at the same time. what: for people."""

    what: str
    groups: tuple[tuple[NodePlan, ...], ...]


@dataclass(frozen=True)
class RoundResult:
    """What each group of a round reported, in the same order, and how long the round took."""

    groups: Sequence[Sequence[Stream]]
    duration_s: float


Session = Generator[Round, RoundResult, SmokeResult]


def smoke_session(
    hosts: Sequence[str],
    surveys: Surveys,
    request: Request,
    options: SessionOptions,
    expectations: Expectations = NOTHING_KNOWN,
) -> Session:
    """The result over these hosts. Hosts that cannot take part are listed, and the others go on
    without them."""
    ready = prepare(hosts, surveys, request, options)
    streams: Sequence[Stream] = ()
    if ready.plans:
        outcome = yield Round("the group", (tuple(ready.plans),))
        streams = outcome.groups[0]
    away = [Stream(host, (), (), reason) for host, reason in ready.absent.items()]
    result = msgspec.structs.replace(
        judge([*streams, *away], expectations),
        rendezvous=meeting_row(ready.meeting, streams, options.port),
    )
    if streams and result.verdict == "fail":
        retry = _Retry(request, options, ready, usual_paces(streams), expectations)
        if options.experiments:
            result = yield from experiment_rounds(result, _planned(result, ready), retry.attempt)
        if options.isolate and len(ready.members) >= FEWEST_TO_ISOLATE:
            result = yield from _search(result, retry)
    return result


def follow(session: Session, run: Callable[[Sequence[NodePlan]], list[Stream]]) -> SmokeResult:
    """The result; all groups of a round are run at the same time."""
    try:
        wanted = next(session)
        while True:
            began = time.monotonic()
            with ThreadPoolExecutor(max_workers=max(1, len(wanted.groups))) as workers:
                received = list(workers.map(run, wanted.groups))
            wanted = session.send(RoundResult(received, time.monotonic() - began))
    except StopIteration as done:
        result: SmokeResult = done.value
        return result


@dataclass
class _Retry:
    """Parts of the group, or the group under another setting, with only the failing phase; and how
    much time that has taken."""

    request: Request
    options: SessionOptions
    ready: Ready
    usual: Mapping[str, Sequence[float]]
    expectations: Expectations
    spent_s: float = field(default=0.0)

    @property
    def over(self) -> bool:
        return self.spent_s >= self.options.search_timeout

    def plans(
        self, request: Request, hosts: Sequence[str], nproc: int | None = None
    ) -> tuple[NodePlan, ...]:
        """The plans of the hosts; () without a usable rendezvous."""
        members, meeting, _ = find_members(
            {host: self.ready.able[host] for host in hosts}, request, nproc or self.options.nproc
        )
        return tuple(plan_members(request, members, meeting, None)) if meeting else ()

    def verdicts(
        self, outcome: RoundResult, expectations: Expectations = NOTHING_KNOWN
    ) -> list[str]:
        """pass, fail or error of each group. Two ranks alone do not show which is slow: their pace
        is compared with the others' in the whole group."""
        self.spent_s += outcome.duration_s
        return [
            "fail" if stands_out(streams, self.usual) else judge(streams, expectations).verdict
            for streams in outcome.groups
        ]

    def attempt(
        self, experiment: Experiment, phase: str
    ) -> Generator[Round, RoundResult, tuple[str, float]]:
        """(verdict, seconds) of the group with one change, judged as the group was."""
        members = self.ready.members
        hosts = [member.host for member in members[: 1 if experiment.alone else None]]
        request = narrowed(self.request, phase, experiment)
        plans = self.plans(request, hosts, 1 if experiment.alone else None)
        if self.over or not plans:
            return NOT_TRIED, 0.0
        outcome = yield Round(f"experiment: {experiment.name}", (plans,))
        return self.verdicts(outcome, self.expectations)[0], outcome.duration_s


def usual_paces(streams: Sequence[Stream]) -> dict[str, list[float]]:
    """{host: times (us) of its ranks} of those that were no outliers in the whole group."""
    reported = stories(streams)
    times = paces(reported)
    slow = {rank for rank, _, _ in stragglers(times)}
    found: dict[str, list[float]] = {}
    for rank, time_us in times.items():
        if rank not in slow:
            found.setdefault(reported[rank].host, []).append(time_us)
    return found


def stands_out(streams: Sequence[Stream], usual: Mapping[str, Sequence[float]]) -> bool:
    """Whether a rank of a part of the group is slow beside the hosts that are not in it."""
    mine = paces(stories(streams))
    hosts = {stream.host for stream in streams}
    others = [time_us for host, times in usual.items() if host not in hosts for time_us in times]
    everybody = mine | {-1 - place: time_us for place, time_us in enumerate(others)}
    return bool(mine) and any(rank in mine for rank, _, _ in stragglers(everybody))


def _planned(result: SmokeResult, ready: Ready) -> list[Experiment]:
    backend = next((row.backend for row in result.hosts if row.backend), "gloo")
    meeting = ready.meeting
    interfaces = other_interfaces(ready.able, meeting.interface) if meeting else []
    return plan_experiments(backend, interfaces)


def phase_of_search(result: SmokeResult) -> str | None:
    """The phase to repeat with parts of the group; None if the search could find nothing."""
    found = worth_trying(result)
    if found:
        return found
    # Nodes that did not reach the rendezvous may be healthy, with a broken path to them.
    blamed = {suspect.phase for suspect in result.suspects}
    return "init" if result.verdict == "fail" and blamed == {"rendezvous"} else None


def _search(result: SmokeResult, retry: _Retry) -> Generator[Round, RoundResult, SmokeResult]:
    """The result with `isolation`, and with its findings among the suspects."""
    phase = phase_of_search(result)
    if phase is None:
        return result
    request = replace(
        retry.request,
        phases=(phase,),
        total_timeout_s=min(retry.request.total_timeout_s, PAIR_LIMIT_S),
        rendezvous_timeout_s=PAIR_RENDEZVOUS_S,
    )
    search = isolate([member.host for member in retry.ready.members], retry.options.switches)
    rounds = 0
    try:
        groups = next(search)
        while not retry.over:
            rounds += 1
            groups = search.send((yield from _try(request, groups, rounds, retry)))
        text = (
            f"given up after {retry.spent_s:.0f} s and {rounds} rounds without an answer:"
            " --search-timeout"
        )
        return msgspec.structs.replace(result, isolation=Isolation(rounds, text))
    except StopIteration as done:
        return _conclude(result, done.value, phase)


def _try(
    request: Request, groups: Sequence[Group], number: int, retry: _Retry
) -> Generator[Round, RoundResult, list[bool]]:
    """Which groups of one round pass. One without a place to meet fails, without being started."""
    planned = [retry.plans(request, group) for group in groups]
    able = tuple(plans for plans in planned if plans)
    verdicts = iter(
        retry.verdicts((yield Round(f"search for the bad node, round {number}", able)))
        if able
        else ()
    )
    return [next(verdicts) == "pass" if plans else False for plans in planned]


def _conclude(result: SmokeResult, answer: Isolation, phase: str) -> SmokeResult:
    """Adds the answer, and a suspect for each thing found. A node that could not reach the
    rendezvous is no longer a suspect, nor is the group."""
    found = []
    for node in answer.bad_nodes:
        why = (
            "the group fails with it and passes without it; it failed with two partners that are"
            " good"
        )
        found.append(
            Suspect(
                node,
                None,
                None,
                phase,
                why,
                f"drain {node}; unhang audit -i INVENTORY --host {node}",
            )
        )
    for one, other in answer.bad_links:
        why = (
            f"{one} and {other} fail together and are good with others: a bad link between two good"
            " nodes"
        )
        found.append(
            Suspect(None, None, None, phase, why, "cables, switch ports and routes between the two")
        )
    for switch, other in answer.switches:
        found.append(
            Suspect(
                None,
                None,
                None,
                phase,
                f"fails only across switch {switch} and {other}",
                "uplinks, routes and firewalls between these switches",
            )
        )
    if answer.from_nodes:
        then = (
            "limits that grow with the group: open files, sockets, memory, channels; the fabric's"
            " oversubscription"
        )
        found.append(
            Suspect(None, None, None, phase, f"fails only from {answer.from_nodes} nodes on", then)
        )
    kept = [
        row
        for row in result.suspects
        if not found or (row.phase != "rendezvous" and (row.host is not None or row.phase != phase))
    ]
    blamed = {row.host for row in kept if row.host}
    suspects = kept + [row for row in found if row.host not in blamed]
    return msgspec.structs.replace(result, isolation=answer, suspects=suspects)
