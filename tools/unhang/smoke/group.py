"""The smoke test of several nodes, whatever carries it: survey, meeting place, run, experiments, isolation."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from unhang.errors import UserError
from unhang.smoke.experiments import Experiment, narrowed, plan_experiments, run_experiments, worth_trying
from unhang.smoke.isolation import Group, drive, isolate
from unhang.smoke.plan import Member, NodePlan, Request, plan_group
from unhang.smoke.rendezvous import Meeting, NoMeeting, choose_meeting, other_interfaces
from unhang.smoke.result import judge
from unhang.smoke.streams import Stream

FEWEST_TO_ISOLATE = 3
PAIR_LIMIT_S = 90.0
PORTS = (20000, 32000)  # below what systems hand out by themselves
Run = Callable[[Sequence[NodePlan]], list[Stream]]


@dataclass(frozen=True)
class Launcher:
    """What differs between ways to reach nodes. survey: by host the payload's answer or why there is none; run: one group, to its end."""

    name: str
    survey: Callable[[Sequence[str]], Mapping[str, Mapping[str, Any] | str]]
    run: Run


@dataclass(frozen=True)
class Wishes:
    """How far to go after a failure. leaves: switch by host. nproc: ranks per node, None for one per GPU. port: None for a free one."""

    nproc: int | None = None
    port: int | None = None
    experiments: bool = True
    isolation: bool = True
    leaves: Mapping[str, str] | None = None


def smoke_group(
    hosts: Sequence[str], launcher: Launcher, request: Request, wishes: Wishes,
    table: Sequence[Mapping[str, Any]] = (), history: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:  # fmt: skip
    """The result over these hosts. Hosts that cannot take part are named, and the others go on without them."""
    ready = prepare(hosts, launcher.survey(hosts), request, wishes)
    able, members = ready.able, ready.members
    streams = launcher.run(ready.plans) if ready.plans else []
    away = [Stream(host, (), (), reason) for host, reason in ready.absent.items()]
    result = judge([*streams, *away], table, history)
    result["rendezvous"] = meeting_row(ready.meeting, streams, wishes.port)
    if streams and result["verdict"] == "fail":
        go = _Again(launcher, request, wishes, able)
        if wishes.experiments:
            backend = next((row["backend"] for row in result["hosts"] if row.get("backend")), "gloo")
            interfaces = other_interfaces(able, ready.meeting.interface) if ready.meeting else []
            result["experiments"] = run_experiments(result, plan_experiments(backend, interfaces), lambda one, phase: go.experiment(one, phase, members))
        if wishes.isolation and len(members) >= FEWEST_TO_ISOLATE and worth_trying(result):
            _isolate(result, go, [member.host for member in members])
    return result


@dataclass(frozen=True)
class Ready:
    """A group that can be started. able: surveys of its hosts; absent: why a host takes no part."""

    able: Mapping[str, Mapping[str, Any]]
    absent: Mapping[str, str]
    members: Sequence[Member]
    meeting: Meeting | None
    plans: Sequence[NodePlan]


def prepare(hosts: Sequence[str], surveys: Mapping[str, Mapping[str, Any] | str], request: Request, wishes: Wishes) -> Ready:
    """From surveys to plans."""
    able = {host: survey for host in hosts if not isinstance(survey := surveys[host], str)}
    absent = {host: str(surveys[host]) for host in hosts if host not in able}
    for host, reason in other_gpus(able).items():
        absent[host] = reason
        del able[host]
    members, meeting, problem = _members(able, request, wishes)
    plans = _plans(request, members, meeting, wishes.port) if members and meeting else []
    return Ready(able, absent | problem, members, meeting, plans)


def other_gpus(surveys: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """{host: why} of hosts whose GPUs are not those of most; nobody when there is no majority."""
    models = gpu_models(surveys)
    counts = Counter(models.values()).most_common(2)
    if len(counts) < 2 or counts[0][1] == counts[1][1]:
        return {}
    usual = counts[0][0]
    text = "its peers have {}, it has {}: left out, the others go on without it"
    return {host: text.format(_gpus(usual), _gpus(own)) for host, own in models.items() if own != usual}


def gpu_models(surveys: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Models of the GPUs of each host, sorted."""
    found = {}
    for host, survey in surveys.items():
        rows = survey.get("gpus")
        found[host] = tuple(sorted(str(row.get("model")) for row in rows if isinstance(row, dict))) if isinstance(rows, list) else ()
    return found


def _gpus(models: Sequence[str]) -> str:
    return ", ".join(f"{count} × {model}" for model, count in Counter(models).items()) or "no GPU"


def _members(able: Mapping[str, Mapping[str, Any]], request: Request, wishes: Wishes) -> tuple[list[Member], Meeting | None, dict[str, str]]:
    """Members with the meeting's host first; the reason for each host when there is no place to meet."""
    hosts, reasons = list(able), []
    for place in range(min(8, len(hosts))):
        order = [*hosts[place:], *hosts[:place]]
        try:
            meeting = choose_meeting(able, order)
        except NoMeeting as problem:
            reasons.append(str(problem))
            continue
        return [Member(host, _ranks(able[host], request, wishes), meeting.interfaces.get(host)) for host in order], meeting, {}
    return [], None, dict.fromkeys(hosts, reasons[0]) if reasons else {}


def _ranks(survey: Mapping[str, Any], request: Request, wishes: Wishes) -> int:
    gpus = survey.get("gpus")
    count = len(gpus) if isinstance(gpus, list) and request.backend != "gloo" else 0
    return wishes.nproc or count or 1


def _plans(request: Request, members: Sequence[Member], meeting: Meeting, port: int | None) -> list[NodePlan]:
    return plan_group(request, members, meeting.address, port or random.randrange(*PORTS))  # noqa: S311 -- a port, no secret


def meeting_row(meeting: Meeting | None, streams: Sequence[Stream], port: int | None) -> dict[str, Any] | None:
    """The result's `rendezvous`."""
    if meeting is None:
        return None
    begun = [event for stream in streams for event in stream.events if event["e"] == "phase_end" and event.get("phase") == "rendezvous"]
    ports = [event["result"]["port"] for event in begun if isinstance(event.get("result"), dict) and isinstance(event["result"].get("port"), int)]
    place = {"host": meeting.host, "address": meeting.address, "interface": meeting.interface, "why": meeting.why}
    return {**place, "port": ports[0] if ports else port or 0}


@dataclass(frozen=True)
class _Again:
    """Parts of the group, or the group under another setting, with only the failing phase."""

    launcher: Launcher
    request: Request
    wishes: Wishes
    able: Mapping[str, Mapping[str, Any]]

    def verdict(self, request: Request, hosts: Sequence[str], nproc: int | None = None) -> str:
        """pass, fail or error of a group of hosts."""
        wishes = self.wishes if nproc is None else replace(self.wishes, nproc=nproc)
        members, meeting, _ = _members({host: self.able[host] for host in hosts}, request, wishes)
        if meeting is None:
            return "fail"
        return str(judge(self.launcher.run(_plans(request, members, meeting, None)))["verdict"])

    def experiment(self, experiment: Experiment, phase: str, members: Sequence[Member]) -> tuple[str, float]:
        """(verdict, seconds) of one change."""
        began = time.monotonic()
        hosts = [members[0].host] if experiment.alone else [member.host for member in members]
        return self.verdict(narrowed(self.request, phase, experiment), hosts, 1 if experiment.alone else None), time.monotonic() - began

    def round(self, phase: str, groups: Sequence[Group]) -> list[bool]:
        """Which groups of one round pass; all at the same time."""
        request = replace(self.request, phases=(phase,), total_timeout_s=min(self.request.total_timeout_s, PAIR_LIMIT_S))
        with ThreadPoolExecutor(max_workers=len(groups)) as workers:
            return list(workers.map(lambda group: self.verdict(request, group) == "pass", groups))


def _isolate(result: dict[str, Any], again: _Again, hosts: Sequence[str]) -> None:
    """Adds `isolation`, and whom it found to the suspects."""
    phase = worth_trying(result) or "init"
    answer = drive(isolate(hosts, again.wishes.leaves), lambda groups: again.round(phase, groups))
    result["isolation"] = {
        "rounds": answer.rounds, "answer": answer.text, "bad_nodes": list(answer.bad_nodes), "bad_links": [list(link) for link in answer.bad_links],
        "leaves": [list(pair) for pair in answer.leaves], "from_nodes": answer.from_nodes, "unresolved": list(answer.unresolved),
    }  # fmt: skip
    named = {suspect["host"] for suspect in result["suspects"]}
    for host in answer.bad_nodes:
        if host not in named:
            then = f"drain {host}; unhang audit --limit {host}"
            why = "the group fails with it and passes without it; it failed with two partners that are good"
            result["suspects"].append({"host": host, "rank": None, "gpu": None, "phase": phase, "why": why, "next": then})


def expand_hosts(texts: Sequence[str]) -> list[str]:
    """Node sets to host names. Raises UserError."""
    from unhang.nodeset import expand_limit

    hosts: list[str] = []
    for text in texts:
        for name in expand_limit(text):
            if name.startswith(("!", "&", "~", "@")) or any(sign in name for sign in "*?["):
                raise UserError(f"--hosts: expected host names or node sets such as gpu[01-08], found {name!r}")
            hosts.append(name)
    found = list(dict.fromkeys(hosts))
    if not found:
        raise UserError("--hosts: expected host names or node sets such as gpu[01-08], found none")
    return found
