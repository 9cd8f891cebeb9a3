"""The time that released nodes soak before the next wave begins, and which of them are asked again
after it. Values in, values out."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from unhang.act.plan.plan_document import Plan
from unhang.act.rollout.rollout_state import RolloutState
from unhang.act.rollout.steps import RELEASED, Entry
from unhang.act.rollout.waiting import parse_time, utc_text
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.text import visible

DEFAULT = "5m"


@dataclass(frozen=True)
class Soaking:
    """until: when the soak is over, RFC 3339, UTC; hosts: released nodes that nobody has asked
    since then."""

    until: str
    hosts: tuple[str, ...]


def parse_soak(given: str) -> int:
    """Seconds of a time such as 5m; 0 for 0 and for "". Raises UserError."""
    text = str(given).strip()
    return 0 if text in ("", "0") else parse_time(text, "--soak")


def soaking_before(standing: RolloutState, plan: Plan, soak_s: int, wave: int) -> Soaking | None:
    """What this wave (from 0; the number of waves: the rollout's end) waits for; None if every node
    that was released before it has soaked and was asked. soak_s: seconds after the release of the
    last of them; 0: nobody soaks."""
    earlier = [host for one in plan.waves[:wave] for host in one.hosts]
    released = [
        host
        for host in earlier
        if (node := standing.node(host)).state == RELEASED and not node.out_of_service
    ]
    if not soak_s or not released:
        return None
    last = max(_moment(standing.node(host).released_at) for host in released)
    until = last + datetime.timedelta(seconds=soak_s)
    hosts = tuple(
        host for host in released if not _was_asked(standing.node(host).asked_after, until)
    )
    return Soaking(utc_text(until), hosts) if hosts else None


def soak_that_is_over(standing: RolloutState, plan: Plan, soak_s: int, at: str) -> Soaking | None:
    """The soak of most waves that was over at this time, and whose nodes are to be asked now."""
    for wave in range(len(plan.waves), 0, -1):
        found = soaking_before(standing, plan, soak_s, wave)
        if found is not None and not seconds_left(found.until, at, soak_s):
            return found
    return None


def seconds_left(until: str, at: str, soak_s: int) -> int:
    """Seconds until a soak is over. 0 also if that is later than a soak lasts: somebody has set the
    clock back."""
    left = round((_moment(until) - _moment(at)).total_seconds())
    return left if 0 < left <= soak_s else 0


def fallen(standing: RolloutState, waves: Sequence[Sequence[str]]) -> list[str]:
    """Nodes with a fault after their release, in the plan's order."""
    return [host for hosts in waves for host in hosts if standing.node(host).fell]


def describe_soak(entry: Entry | None) -> str:
    """The soak of an entry of the journal, in words; "" for none."""
    if entry is None:
        return ""
    listed, until = (
        [str(host) for host in entry.evidence.get("hosts") or ()],
        visible(str(entry.evidence.get("until"))),
    )
    after = (
        f", and {visible(str(entry.evidence['wave']))} begins" if entry.evidence.get("wave") else ""
    )
    verb, them = ("soaks", "it is") if len(listed) == 1 else ("soak", "they are")
    return (
        f"{shortened(fold_hosts(listed), 200)} {verb} until {until}; then {them} asked again{after}"
    )


def _was_asked(asked_after: str, until: datetime.datetime) -> bool:
    return bool(asked_after) and _moment(asked_after) >= until


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)
