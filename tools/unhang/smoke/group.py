"""Prepares a group of nodes from their surveys: its members, the address of the rendezvous, and the
plan of each node. Values in, values out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unhang.core.commands.options import Options
from unhang.core.smoke_result import MeetingPlace
from unhang.core.text import visible
from unhang.smoke.node_plans import Member, NodePlan, Request, plan_group
from unhang.smoke.rendezvous import Meeting, NoMeeting, choose_meeting
from unhang.smoke.streams import Stream, stories
from unhang_node.base.parse.values import as_list, as_maps

PORTS = (20000, 32000)  # below the ports that systems assign automatically
MOST_PLACES = 8
SHOWN_USERS = 4
# {host: the payload's survey, or one line why there is none}
Surveys = Mapping[str, Mapping[str, Any] | str]


class SessionOptions(Options, frozen=True):
    """Options about experiments after a failure. switches: switch by host. nproc: ranks per node,
    None for one per GPU. port: None for a free one.

    search_timeout: seconds for experiments and the search for the bad node (isolate) together.
    beside_jobs: start although processes or jobs use the GPUs.
    """

    nproc: int | None = None
    port: int | None = None
    experiments: bool = True
    isolate: bool = True
    switches: Mapping[str, str] | None = None
    search_timeout: float = 1200.0
    beside_jobs: bool = False


@dataclass(frozen=True)
class Ready:
    """A group that can be started. able: surveys of its hosts; absent: why a host takes no part."""

    able: Mapping[str, Mapping[str, Any]]
    absent: Mapping[str, str]
    members: Sequence[Member]
    meeting: Meeting | None
    plans: Sequence[NodePlan]


def prepare(
    hosts: Sequence[str], surveys: Surveys, request: Request, options: SessionOptions
) -> Ready:
    """From surveys to plans."""
    able = {host: survey for host in hosts if not isinstance(survey := surveys[host], str)}
    absent = {host: str(surveys[host]) for host in hosts if host not in able}
    busy = (
        {}
        if options.beside_jobs or request.backend == "gloo"
        else {host: why for host, survey in able.items() if (why := why_busy(survey))}
    )
    absent |= busy
    able = {host: survey for host, survey in able.items() if host not in busy}
    for host, reason in other_gpus(able).items():
        absent[host] = reason
        del able[host]
    members, meeting, problem = find_members(able, request, options.nproc)
    plans = plan_members(request, members, meeting, options.port) if members and meeting else []
    return Ready(able, absent | problem, members, meeting, plans)


def why_busy(survey: Mapping[str, Any]) -> str:
    """Why the test would disturb a job on this node; "" if nobody uses its GPUs, or if that is not
    known."""
    rows = as_list(survey.get("in_use"))
    users = [visible(str(row), 80) for row in rows[:SHOWN_USERS]]
    more = f" and {len(rows) - SHOWN_USERS} more" if len(rows) > SHOWN_USERS else ""
    return (
        f"the GPUs are in use by {', '.join(users)}{more}: nothing was started; drain it first, or"
        " --beside-jobs"
        if users
        else ""
    )


def other_gpus(surveys: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """{host: why} of hosts whose GPUs differ from the majority's; empty if there is no majority."""
    models = gpu_models(surveys)
    counts = Counter(models.values()).most_common(2)
    if len(counts) < 2 or counts[0][1] == counts[1][1]:
        return {}
    usual = counts[0][0]
    text = "its peers have {}, it has {}: left out, the others go on without it"
    return {
        host: text.format(_gpus(usual), _gpus(own)) for host, own in models.items() if own != usual
    }


def gpu_models(surveys: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """Models of the GPUs of each host, sorted."""
    return {
        host: tuple(sorted(str(row.get("model")) for row in as_maps(survey.get("gpus"))))
        for host, survey in surveys.items()
    }


def _gpus(models: Sequence[str]) -> str:
    return ", ".join(f"{count} × {model}" for model, count in Counter(models).items()) or "no GPU"


def find_members(
    able: Mapping[str, Mapping[str, Any]], request: Request, nproc: int | None
) -> tuple[list[Member], Meeting | None, dict[str, str]]:
    """Members with the meeting's host first; the reason for each host if there is no usable
    rendezvous."""
    hosts, reasons = list(able), []
    for place in range(min(MOST_PLACES, len(hosts))):
        order = [*hosts[place:], *hosts[:place]]
        try:
            meeting = choose_meeting(able, order)
        except NoMeeting as problem:
            reasons.append(str(problem))
            continue
        return (
            [
                Member(host, nproc or _ranks(able[host], request), meeting.interfaces.get(host))
                for host in order
            ],
            meeting,
            {},
        )
    return [], None, dict.fromkeys(hosts, reasons[0]) if reasons else {}


def _ranks(survey: Mapping[str, Any], request: Request) -> int:
    return (len(as_list(survey.get("gpus"))) if request.backend != "gloo" else 0) or 1


def plan_members(
    request: Request, members: Sequence[Member], meeting: Meeting, port: int | None
) -> list[NodePlan]:
    """The plan of each member."""
    return plan_group(request, members, meeting.address, port or random.randrange(*PORTS))  # noqa: S311 -- a port, no secret


def meeting_row(
    meeting: Meeting | None, streams: Sequence[Stream], port: int | None
) -> MeetingPlace | None:
    """The result's `rendezvous`."""
    if meeting is None:
        return None
    answers = [story.result("rendezvous").get("port") for story in stories(streams).values()]
    ports = [one for one in answers if isinstance(one, int)]
    found = ports[0] if ports else port or 0
    return MeetingPlace(meeting.host, meeting.address, found, meeting.interface, meeting.why)
