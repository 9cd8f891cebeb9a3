"""The time that released nodes soak before the next wave begins, and which of them are asked again
after it. Values in, values out."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from unhang.act.plan.plan_document import Plan
from unhang.act.rollout.rollout_state import RolloutState
from unhang.act.rollout.steps import RELEASED, Entry
from unhang.act.rollout.waiting import parse_time
from unhang.core.errors import UserError
from unhang.core.nodeset import fold_hosts, shortened
from unhang.core.text import visible

DEFAULT = "10m,2m"


@dataclass(frozen=True)
class Soak:
    """canaries_s, waves_s: seconds after the release of a canary and of another node; 0: the node
    is not waited for."""

    canaries_s: int = 0
    waves_s: int = 0

    @property
    def longest_s(self) -> int:
        return max(self.canaries_s, self.waves_s)


@dataclass(frozen=True)
class Soaking:
    """until: when the soak is over, RFC 3339, UTC; hosts: released nodes that nobody has asked
    since then."""

    until: str
    hosts: tuple[str, ...]


def parse_soak(given: str) -> Soak:
    """One time for all nodes (5m, 0), or that of canaries and that of the others (10m,2m). "" is 0.
    Raises UserError."""
    parts = [part.strip() for part in str(given).split(",")] if str(given).strip() else ["0"]
    if len(parts) > 2:
        raise UserError(
            "--soak: expected one time, or that of canaries and that of later waves such as"
            f" {DEFAULT}, found {given!r}"
        )
    seconds = [0 if part == "0" else parse_time(part, "--soak") for part in parts]
    return Soak(seconds[0], seconds[-1])


def soaking_before(standing: RolloutState, plan: Plan, soak: Soak, wave: int) -> Soaking | None:
    """What this wave (from 0; the number of waves: the rollout's end) waits for; None if every node
    that was released before it has soaked and was asked."""
    released = [
        (host, plan.waves[at].is_canary)
        for at in range(wave)
        for host in plan.waves[at].hosts
        if standing.node(host).state == RELEASED
    ]
    ends = [
        _later(standing.node(host).released_at, soak.canaries_s if is_canary else soak.waves_s)
        for host, is_canary in released
        if _soaks(soak, is_canary)
    ]
    if not ends:
        return None
    until = max(ends)
    hosts = tuple(
        host for host, _ in released if not _was_asked(standing.node(host).asked_after, until)
    )
    return Soaking(_text(until), hosts) if hosts else None


def soak_that_is_over(standing: RolloutState, plan: Plan, soak: Soak, at: str) -> Soaking | None:
    """The soak of most waves that was over at this time, and whose nodes are to be asked now."""
    for wave in range(len(plan.waves), 0, -1):
        found = soaking_before(standing, plan, soak, wave)
        if found is not None and not seconds_left(found.until, at, soak):
            return found
    return None


def seconds_left(until: str, at: str, soak: Soak) -> int:
    """Seconds until a soak is over. 0 also if that is later than any soak lasts: somebody has set
    the clock back."""
    left = round((_moment(until) - _moment(at)).total_seconds())
    return left if 0 < left <= soak.longest_s else 0


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


def _soaks(soak: Soak, is_canary: bool) -> bool:
    return bool(soak.canaries_s if is_canary else soak.waves_s)


def _later(since: str, seconds: int) -> datetime.datetime:
    return _moment(since) + datetime.timedelta(seconds=seconds)


def _was_asked(asked_after: str, until: datetime.datetime) -> bool:
    return bool(asked_after) and _moment(asked_after) >= until


def _moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def _text(at: datetime.datetime) -> str:
    return at.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
